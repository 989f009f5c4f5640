"""Notebooks for Colab and hubs: their first cell fetches the book where it is missing, once."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from book import colab
from book.theme import page

ROOT = Path(__file__).resolve().parents[2]


def git(folder, *words):
    done = subprocess.run(
        ["git", "-C", folder, "-c", "user.name=a", "-c", "user.email=a@b.org", *words],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path):
    """A repository with a library of one line; its address and its commit."""
    top = tmp_path / "book.git"
    (top / "transformer_parts").mkdir(parents=True)
    (top / "transformer_parts" / "__init__.py").write_text("told = 'of this commit'\n")
    git(tmp_path, "init", "-q", top)
    git(top, "config", "uploadpack.allowReachableSHA1InWant", "true")
    git(top, "add", ".")
    git(top, "commit", "-qm", "one")
    commit = git(top, "rev-parse", "HEAD")
    git(top, "rm", "-q", "transformer_parts/__init__.py")
    git(top, "commit", "-qm", "two")
    return f"file://{top}", commit


# Python without its packages, with a pip that only says what it was asked for.
BARE = """
import subprocess, sys
run = subprocess.run
def asked(words, **more):
    if words[0] == "git":
        return run(words, **more)
    print("pip", *words[words.index("install") + 1:])
subprocess.run = asked
exec(open(sys.argv[1]).read())
import transformer_parts
print(transformer_parts.told)
"""


def test_the_cell_fetches_that_commit_once_and_what_is_missing(repository, tmp_path):
    (tmp_path / "cell.py").write_text(colab.first_cell(*repository))
    words = [sys.executable, "-I", "-S", "-c", BARE, str(tmp_path / "cell.py")]
    for _ in range(2):
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        first, pip, *rest = done.stdout.splitlines()
        assert first == "Fetching the book: about a minute."
        assert rest == ["The book is there.", "of this commit"]
        assert pip.startswith("pip -q anywidget==")
        # What a platform has, it keeps: another torch would take minutes and break its own.
        assert not {"torch", "numpy", "matplotlib"} & {w.split("==")[0] for w in pip.split()}
        # The second time, after a restart of the kernel, nothing is fetched.
        git(tmp_path, "-C", repository[0].removeprefix("file://"), "branch", "-qM", "gone")
    assert (tmp_path / f"book-{repository[1][:7]}" / "transformer_parts").is_dir()


def test_where_the_book_is_the_cell_does_nothing(tmp_path):
    cell = tmp_path / "cell.py"
    cell.write_text(colab.first_cell("https://github.com/o/n", "0123abc"))
    done = subprocess.run(
        [sys.executable, cell], cwd=tmp_path, capture_output=True, text=True,
        env={"PYTHONPATH": str(ROOT), "PATH": ""},
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


# What a platform has, with all that these bring along. They run in a process that has nothing else.
THERE = ("torch", "numpy", "matplotlib", "ipykernel")
ONLY = """
import json, sys
from importlib.metadata import PackageNotFoundError, packages_distributions, requires

told = json.loads(sys.argv[1])
known, left = set(), [plain.lower() for plain in told["there"]]
while left:
    name = left.pop()
    if name not in known:
        known.add(name)
        try:
            needed = [r for r in requires(name) or () if "extra ==" not in r]
        except PackageNotFoundError:
            continue
        for one in needed:
            end = next((k for k, c in enumerate(one) if not (c.isalnum() or c in "-_.")), len(one))
            left.append(one[:end].lower())
modules = {m for m, some in packages_distributions().items() if {s.lower() for s in some} & known}
modules |= {"book", "transformer_parts", *sys.stdlib_module_names}

class Only:
    def __init__(self, finder):
        self.finder = finder

    def __getattr__(self, name):
        return getattr(self.finder, name)

    def find_spec(self, name, path=None, target=None):
        top = name.split(".")[0]
        spec = self.finder.find_spec(name, path, target)
        # Beside the packages, what others bring within them.
        vendored = spec and "_vendor" in f"{spec.origin} {spec.submodule_search_locations}"
        own = top in modules or top.startswith("_") or top.endswith("__mypyc")
        return spec if own or vendored else None

sys.meta_path[:] = [Only(finder) for finder in sys.meta_path]
for line in told["lines"]:
    exec(line)
from book.checkers import check
check("softmax.softmax", lambda x, dim: x)
"""


def test_what_the_chapters_import_is_needed_or_there():
    lines = set()
    for path in (ROOT / "notebooks").glob("*.ipynb"):
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            if cell["cell_type"] == "code":
                tree = ast.parse("".join(x for x in cell["source"] if not x.startswith("%")))
                lines |= {ast.unparse(n) for n in tree.body
                          if isinstance(n, ast.Import | ast.ImportFrom)}  # fmt: skip
    lines = sorted(x for x in lines if "__future__" not in x)
    assert len(lines) > 50
    told = {"lines": lines, "there": [*THERE, *colab.NEEDED.values()]}
    done = subprocess.run(
        [sys.executable, "-c", ONLY, json.dumps(told)], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "softmax.softmax: not yet." in done.stdout
    # It would notice.
    told = {"lines": ["import book.witness"], "there": [x for x in told["there"] if x != "lark"]}
    done = subprocess.run(
        [sys.executable, "-c", ONLY, json.dumps(told)], cwd=ROOT, capture_output=True, text=True
    )
    assert "No module named 'lark'" in done.stderr


def test_every_chapter_is_written_with_the_cell_first(tmp_path, capsys):
    asked = [str(tmp_path), "--repository", "https://github.com/o/n", "--commit", "0123abc"]
    assert colab.main(asked) == 0
    sources = sorted((ROOT / "notebooks").glob("*.ipynb"))
    assert f"{len(sources)} notebooks" in capsys.readouterr().out
    for path in sources:
        made = json.loads((tmp_path / "notebooks" / path.name).read_text(encoding="utf-8"))
        first, *rest = made["cells"]
        assert rest == json.loads(path.read_text(encoding="utf-8"))["cells"]
        assert "".join(first["source"]) == colab.first_cell("https://github.com/o/n", "0123abc")
        assert "about a minute" in first["source"][0]
        assert first["id"] not in {c["id"] for c in rest}
    assert (tmp_path / "LICENSE").read_text() == (ROOT / "LICENSE").read_text()


@pytest.mark.parametrize(
    ("repository", "commit"),
    [('https://x/"; rm', "0123abc"), ("https://x/y", "main"), ("x/y", "0123abc")],
)
def test_what_would_run_in_the_cell_is_refused(repository, commit, tmp_path, capsys):
    with pytest.raises(colab.ColabError):
        colab.first_cell(repository, commit)
    asked = [str(tmp_path / "o"), "--repository", repository, "--commit", commit]
    assert colab.main(asked) == 2
    assert "error: " in capsys.readouterr().err


def test_the_button_leads_to_the_repositorys_own_branch():
    (path, *_) = sorted((ROOT / "notebooks").glob("*.ipynb"))
    links = {link["text"]: link.get("href")
             for link in page.elsewhere(f"notebooks/{path.stem}", "https://github.com/me/copy", "x")
             }  # fmt: skip
    assert links["Run on Colab"] == (
        f"https://colab.research.google.com/github/me/copy/blob/{colab.BRANCH}/notebooks/"
        f"{path.name}"
    )
    other = page.elsewhere("notebooks/x", "https://gitlab.com/me/copy", "main")
    assert "Run on Colab" not in [link["text"] for link in other]


def test_a_hub_is_led_to_the_same_branch(capsys):
    asked = ["--repository", "https://github.com/o/n", "--hub", "https://hub.school.edu/"]
    assert colab.main(asked) == 0
    first = capsys.readouterr().out.splitlines()[0]
    assert first == (
        "https://hub.school.edu/hub/user-redirect/git-pull?repo=https%3A%2F%2Fgithub.com%2Fo%2Fn"
        "&branch=colab&urlpath=lab%2Ftree%2Fn%2Fnotebooks%2F01_tensors.ipynb"
    )


def test_the_workflow_writes_the_branch():
    jobs = yaml.safe_load((ROOT / ".github/workflows/publish.yml").read_text())["jobs"]
    steps = [step["run"] for step in jobs["notebooks"]["steps"] if "run" in step]
    words = steps[0].replace("$GITHUB_SERVER_URL/$GITHUB_REPOSITORY", "https://github.com/o/n")
    assert words.split()[:3] == ["python3", "-m", "book.colab"]
    assert f"git push -qf origin {colab.BRANCH}" in steps[1]
    assert jobs["notebooks"]["permissions"] == {"contents": "write"}
