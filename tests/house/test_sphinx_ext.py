"""Protects the site build: where launch buttons point, and the guards that stop a bad site."""

import subprocess
from types import SimpleNamespace

import pytest
from docutils import nodes

from book import sphinx_ext
from book.sphinx_ext import repository_url, site_problems, web_address

# ---------------------------------------------------------------- where the book lives


@pytest.mark.parametrize(
    ("remote", "address"),
    [
        ("https://github.com/owner/name", "https://github.com/owner/name"),
        ("https://github.com/owner/name.git", "https://github.com/owner/name"),
        ("https://github.com/owner/name/", "https://github.com/owner/name"),
        ("https://user:secret@github.com/owner/name.git", "https://github.com/owner/name"),
        ("https://token@github.com/owner/name", "https://github.com/owner/name"),
        ("git@github.com:owner/name.git", "https://github.com/owner/name"),
        ("git@gitlab.example.org:group/sub/name.git", "https://gitlab.example.org/group/sub/name"),
        ("ssh://git@github.com/owner/name.git", "https://github.com/owner/name"),
        ("ssh://git@git.example.org:2222/owner/name.git", "https://git.example.org/owner/name"),
        ("git://git.example.org/owner/name.git", "https://git.example.org/owner/name"),
        ("https://git.example.org:8443/owner/name.git", "https://git.example.org:8443/owner/name"),
        ("https://u:s@git.example.org:8443/owner/name", "https://git.example.org:8443/owner/name"),
        ("https://github.com/owner/name.github.io", "https://github.com/owner/name.github.io"),
        ("/srv/git/name.git", None),
        ("../name", None),
        ("./name.git", None),
        ("file:///srv/git/name.git", None),
        ("C:\\books\\name", None),
        ("https://localhost/owner/name", None),
        ("", None),
    ],
)
def test_the_address_of_a_remote_is_one_that_a_browser_can_open(remote, address):
    assert web_address(remote) == address


@pytest.mark.parametrize("secret", ["user:secret@", "secret@", "user:se@cret@", "user:sec/ret@"])
def test_a_secret_never_comes_through(secret):
    address = web_address(f"https://{secret}github.com/owner/name.git")
    assert address is None or ("secret" not in address and "cret" not in address)


def git(folder, *arguments):
    subprocess.run(["git", *arguments], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path, monkeypatch):
    git(tmp_path, "init", "--quiet")
    monkeypatch.setattr(sphinx_ext, "ROOT", tmp_path)
    return tmp_path


def test_github_says_where_it_builds(repository):
    git(repository, "remote", "add", "origin", "git@example.org:other/one.git")
    environment = {"GITHUB_SERVER_URL": "https://github.com", "GITHUB_REPOSITORY": "owner/name"}
    assert repository_url(environment) == "https://github.com/owner/name"
    del environment["GITHUB_REPOSITORY"]
    assert repository_url(environment) == "https://example.org/other/one"


def test_elsewhere_the_remote_origin_says_it(repository):
    assert repository_url({}) is None
    git(repository, "remote", "add", "origin", "https://me:secret@example.org/owner/name.git")
    assert repository_url({}) == "https://example.org/owner/name"
    git(repository, "remote", "set-url", "origin", str(repository))
    assert repository_url({}) is None


def test_a_download_without_git_has_no_address(tmp_path, monkeypatch):
    monkeypatch.setattr(sphinx_ext, "ROOT", tmp_path)
    assert repository_url({}) is None


def test_the_theme_is_told_what_the_book_is_and_where_it_comes_from(repository):
    config = SimpleNamespace(html_title="A book", project="")
    environment = {"GITHUB_SERVER_URL": "https://github.com", "GITHUB_REPOSITORY": "owner/name"}
    with pytest.MonkeyPatch.context() as patch:
        for name in (*environment, "BOOK_URL"):
            patch.delenv(name, raising=False)
        sphinx_ext._place(None, config)
        assert config.tp_repository is None
        assert config.tp_book.address is None
        for name, value in environment.items():
            patch.setenv(name, value)
        sphinx_ext._place(None, config)
    assert config.tp_repository == "https://github.com/owner/name"
    assert config.tp_book.title == "A book"
    assert config.tp_book.address == "https://owner.github.io/name/"


def test_the_buttons_lead_to_the_branch_that_the_book_is_built_from(repository, monkeypatch):
    monkeypatch.delenv("GITHUB_REF_NAME", raising=False)
    assert sphinx_ext._branch() == "main"
    git(repository, "checkout", "--quiet", "-b", "draft")
    identity = "-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"
    git(repository, *identity, "commit", "--quiet", "--no-verify", "--allow-empty", "-m", "x")
    assert sphinx_ext._branch() == "draft"
    git(repository, "checkout", "--quiet", "--detach")
    assert sphinx_ext._branch() == "main"
    monkeypatch.setenv("GITHUB_REF_NAME", "release")
    assert sphinx_ext._branch() == "release"


# ---------------------------------------------------------------- mathematics


@pytest.fixture
def warnings(monkeypatch):
    """What the extension warns of; -W makes each an error of the build."""
    calls = []
    monkeypatch.setattr(
        sphinx_ext.logger, "warning", lambda message, *args, **_: calls.append(message % args)
    )
    return calls


def converted(latex, display=False):
    translator = SimpleNamespace(encode=lambda words: words)
    return sphinx_ext._mathml(translator, nodes.math("", latex), display=display)


def test_latex_becomes_mathml(warnings):
    assert converted("x^2").startswith("<math")
    assert "<msup>" in converted("x^2")
    assert 'display="block"' in converted("x^2", display=True)
    assert warnings == []


@pytest.mark.parametrize("latex", [r"\frac{1}", r"\nosuchcommand x", "x_{"])
def test_a_formula_that_does_not_parse_is_a_warning_and_so_fails_the_build(warnings, latex):
    assert "<math" not in converted(latex)
    assert len(warnings) == 1
    assert latex in warnings[0]


def test_the_styles_of_mathml_become_classes_and_an_unknown_one_is_an_error():
    cell = '<mtd style="text-align: left;justify-items: start;padding-left: 0;"><mi>x</mi></mtd>'
    assert sphinx_ext.styled(cell) == '<mtd class="tp-m-left"><mi>x</mi></mtd>'
    with pytest.raises(KeyError):
        sphinx_ext.styled('<mi style="color: red">x</mi>')


# ---------------------------------------------------------------- guards

PAGE = "<html><head>{head}</head><body><h1 id='top'>Title</h1>{body}</body></html>"


@pytest.fixture
def site(tmp_path):
    """Writes a built site of two pages, the first with this head and body; returns its problems."""

    def make(head="", body="", *, style="", documents=("index", "sub/other")):
        folder = tmp_path / "site"
        (folder / "sub").mkdir(parents=True, exist_ok=True)
        (folder / "_static").mkdir(exist_ok=True)
        (folder / "index.html").write_text(PAGE.format(head=head, body=body), encoding="utf-8")
        other = PAGE.format(head="", body='<a href="../index.html#top">back</a>')
        (folder / "sub" / "other.html").write_text(other, encoding="utf-8")
        (folder / "_static" / "style.css").write_text(style, encoding="utf-8")
        (tmp_path / "outside.html").write_text("not published", encoding="utf-8")
        return site_problems(folder, set(documents))

    return make


def test_a_sound_site_has_no_problem(site):
    head = (
        '<link rel="stylesheet" href="_static/style.css"><link rel="canonical" href="https://example.org/">'
        '<script src="_static/style.css"></script><script>let here = 1;</script>'
    )
    body = (
        '<a href="sub/other.html">a</a><a href="sub/other.html#top">b</a><a href="#top">c</a>'
        '<a href="#">d</a><a href="sub%2Fother.html">e</a>'
        '<a href="https://example.org/x">f</a><a href="mailto:a@b.c">g</a>'
        '<img src="data:image/gif;base64,R0lGODlhAQABAAAAACw=" alt="A dot.">'
    )
    style = "a { background: url('dot.gif') } b { background: url(data:image/gif;base64,R0lG) }"
    assert site(head, body, style=style) == []


def test_a_missing_page_is_found(site):
    assert site(documents=["index", "sub/other", "sub/lost"]) == [
        "sub/lost.html: the page is missing"
    ]


@pytest.mark.parametrize(
    "foreign",
    [
        '<script src="https://example.org/x.js"></script>',
        '<script src="//example.org/x.js"></script>',
        '<link rel="stylesheet" href="https://example.org/x.css">',
        '<link rel="preconnect" href="https://example.org">',
        '<link rel="icon" href="http://example.org/x.ico">',
        '<img alt="A dot." src="https://example.org/x.png">',
        '<img alt="A dot." src="sub/other.html" srcset="https://example.org/x.png 2x">',
        '<picture><source srcset="//example.org/x.webp"></picture>',
        '<iframe src="https://example.org"></iframe>',
        '<video poster="https://example.org/x.png"></video>',
        '<object data="https://example.org/x.svg"></object>',
        "<style>@import 'https://example.org/x.css';</style>",
        '<p style="background: url(https://example.org/x.png)">x</p>',
    ],
)
def test_whatever_a_page_would_fetch_from_elsewhere_is_found(site, foreign):
    [problem] = site(body=foreign)
    assert problem.startswith("index.html: fetches ")
    assert "example.org" in problem


@pytest.mark.parametrize(
    "style",
    [
        "a { background: url(https://example.org/x.png) }",
        "a { background: url('//example.org/x.png') }",
        '@font-face { src: url("http://example.org/x.woff") }',
        "@import 'https://example.org/x.css';",
        '@import "//example.org/x.css";',
    ],
)
def test_whatever_a_style_sheet_would_fetch_from_elsewhere_is_found(site, style):
    [problem] = site(style=style)
    assert problem.startswith("_static/style.css: fetches ")


@pytest.mark.parametrize(
    "name", ["https://cdn.example.org/x.js", "unpkg.com/x", "//cdn.jsdelivr.net/x"]
)
def test_a_script_that_names_a_content_delivery_network_is_found(site, name):
    assert site(body=f"<script>load('{name}')</script>") == [
        "index.html: names a content delivery network"
    ]


@pytest.mark.parametrize("alt", ["", 'alt=""', 'alt="  "', "alt"])
def test_an_image_without_a_text_alternative_is_found(site, alt):
    assert site(body=f'<img src="x.png" {alt}>') == ["index.html: the image x.png has no alt text"]


@pytest.mark.parametrize(
    ("link", "problem"),
    [
        ("lost.html", "which does not exist"),
        ("sub/lost.html#top", "which does not exist"),
        ("sub", "which does not exist"),
        ("../outside.html", "which does not exist"),
        ("sub/other.html#nowhere", "no such anchor"),
        ("#nowhere", "no such anchor"),
        ("#no%20where", "no such anchor"),
    ],
)
def test_a_link_that_leads_nowhere_is_found(site, link, problem):
    [found] = site(body=f'<a href="{link}">x</a>')
    assert found.startswith(f"index.html: links to {link}")
    assert problem in found


def test_links_are_checked_in_a_folder_that_is_reached_through_a_link_too(site, tmp_path):
    site(body='<a href="sub/other.html#nowhere">x</a>')
    (tmp_path / "alias").symlink_to(tmp_path / "site", target_is_directory=True)
    [found] = site_problems(tmp_path / "alias", {"index"})
    assert "no such anchor" in found


def test_a_traceback_is_found(site):
    [problem] = site(body="<pre>Traceback (most recent call last)</pre>")
    assert problem == "index.html: shows a traceback"


def test_a_traceback_with_colours_is_found(site):
    body = '<pre><span class="gt">Traceback</span> <span>(most recent call last)</span></pre>'
    assert site(body=body) == ["index.html: shows a traceback"]


def test_every_page_is_looked_at_and_every_problem_told(site):
    problems = site(body='<img src="a.png"><img src="b.png"><a href="lost.html">x</a>')
    assert len(problems) == 3


def test_a_problem_stops_the_build(tmp_path, monkeypatch):
    app = SimpleNamespace(
        builder=SimpleNamespace(name="html"),
        outdir=str(tmp_path),
        env=SimpleNamespace(found_docs={"lost"}),
        config=SimpleNamespace(tp_book=None),
    )
    monkeypatch.setattr(sphinx_ext.theme, "finished", lambda app, book: None)
    with pytest.raises(sphinx_ext.ExtensionError, match=r"lost\.html: the page is missing"):
        sphinx_ext._finish(app, None)
    app.env.found_docs = set()
    sphinx_ext._finish(app, None)
    app.env.found_docs = {"lost"}
    sphinx_ext._finish(app, RuntimeError("the build failed before"))


# ---------------------------------------------------------------- findings and facts


def test_the_code_of_a_finding_is_folded_like_that_of_a_hidden_input():
    page = nodes.section()
    for classes in (["cell", "tag_finding"], ["cell"], ["cell", "tag_finding", "tag_hide-input"]):
        page += nodes.container(classes=classes)
    page[2]["hide_mode"] = "all"
    sphinx_ext._fold_findings(None, page)
    assert page[0]["hide_mode"] == "input"
    assert page[0]["prompt_show"] == "The experiment"
    assert [cell.get("hide_mode") for cell in page] == ["input", None, "all"]


def test_a_link_finds_a_fact_by_its_id():
    facts = sphinx_ext.facts
    env = SimpleNamespace(docname=facts.PAGE, metadata={facts.PAGE: {"myst_slugs": {"top": ()}}})
    sphinx_ext._name_facts(SimpleNamespace(env=env), None)
    slugs = env.metadata[facts.PAGE]["myst_slugs"]
    assert set(slugs) == {"top", *facts.load()}
    assert slugs["llama-2-7b"][1] == "fact-llama-2-7b"
    anchors = [one.anchor for one in facts.load().values()]
    assert len(set(anchors)) == len(anchors)
    assert [a for a in anchors if nodes.make_id(a) != a] == []
    env.docname = "other"
    sphinx_ext._name_facts(SimpleNamespace(env=env), None)
    assert set(env.metadata) == {facts.PAGE}


# ---------------------------------------------------------------- the opening of a chapter


def opening():
    tree = nodes.section()
    tree += nodes.title("", "Attention")
    tree += nodes.paragraph("", "A promise.")
    tree += nodes.bullet_list("", nodes.list_item("", nodes.paragraph("", "Time 5 minutes")))
    part = nodes.section("", nodes.title("", "A part"))
    part += nodes.bullet_list("", nodes.list_item("", nodes.paragraph("", "another list")))
    tree += part
    return tree


def test_what_the_opening_lists_becomes_a_note_under_the_title(monkeypatch):
    monkeypatch.setattr(sphinx_ext.checked, "tested_with", lambda name: f"Tested: {name}.")
    builder = SimpleNamespace(format="html", get_relative_uri=lambda page, to: f"../{to}.html")
    app = SimpleNamespace(builder=builder)
    tree = opening()
    sphinx_ext._in_this_chapter(app, tree, "notebooks/05_attention")
    kinds = [type(part).__name__ for part in tree]
    assert kinds == ["title", "Fold", "paragraph", "section"]
    said = ["In this chapter", "Time 5 minutes", "Tested: 05_attention. How it is checked"]
    assert [part.astext() for part in tree[1]] == said
    monkeypatch.setattr(sphinx_ext.checked, "tested_with", lambda name: None)
    tree = opening()
    sphinx_ext._in_this_chapter(app, tree, "notebooks/05_attention")
    assert len(tree[1]) == 2, "what was not tested is not said to be"
    for page, form in (("book/pages/index", "html"), ("notebooks/05_attention", "text")):
        builder.format = form
        tree = opening()
        sphinx_ext._in_this_chapter(app, tree, page)
        assert str(tree) == str(opening())
