"""Submissions that a grader meets: good, clumsy and hostile, as their authors write them.

A row is the notebook and the scores that are right for it. `{port}` in a row is a port on which the
test listens, `{canary}` a file that no submission may read or change.
"""

# ruff: noqa: E501
import json
import tarfile
import zipfile
from io import BytesIO

from sample import GAIN, SOFTMAX, notebook, source, submission

# What stands in the canary file. It must never appear in a result.
CANARY = "canary-7c41d0"


def wrapped(attack, body=SOFTMAX):
    """An answer to the first question whose every call does `attack` first."""
    lines = "\n".join("    " + line for line in attack.strip().split("\n"))
    head, rest = body.split("\n", 1)
    return f"{head}\n{lines}\n{rest}"


WRONG = {"q1": "def my_softmax(x, dim):\n    return x",
         "q2": "class Gain(nn.Module):\n    def __init__(self, n):\n        super().__init__()\n"
               "    def forward(self, x):\n        return x + 1",
         "q3": "def double(n):\n    return n"}  # fmt: skip
OTHERS = 7  # the points of the questions after the first


def rows():
    """Name of the submission: notebook, and the score or scores that are right."""
    right = submission()
    q1 = lambda attack, **more: submission(wrapped(attack), **more)  # noqa: E731
    wrong = lambda first: submission(**WRONG, first=first)  # noqa: E731
    r = {
        "right": (right, 10),
        "all wrong": (submission(**WRONG), 0),
        "not attempted": (submission(*["raise NotImplementedError()"] * 3), 0),
        "syntax error": (submission("def my_softmax(x, dim:\n    return x"), OTHERS),
        "wrong shapes": (submission("def my_softmax(x, dim):\n    return x[:1]"), OTHERS),
        "no return": (submission("def my_softmax(x, dim):\n    x.softmax(dim)"), OTHERS),
        # -- time and processes
        "loop in a call": (q1("while True: pass"), OTHERS),
        "loop in a cell": (submission("while True: pass"), OTHERS),
        "loop that ignores signals": (
            q1("import signal\nfor s in range(1, 32):\n    try: signal.signal(s, signal.SIG_IGN)\n"
               "    except Exception: pass\nwhile True:\n    try:\n        while True: pass\n"
               "    except BaseException: pass"), OTHERS),
        "sleeps in C": (q1("import time; time.sleep(1000)"), OTHERS),
        "exits in a call": (q1("import os; os._exit(0)"), OTHERS),
        "exits in a cell": (submission("import os; os._exit(0)"), OTHERS),
        "kills itself in every cell": (
            submission(*["import os, signal; os.kill(os.getpid(), signal.SIGKILL)"] * 3), 0),
        "crashes in C": (q1("import ctypes; ctypes.string_at(0)"), OTHERS),
        "kills everything": (q1("import os; os.kill(-1, 9)"), OTHERS),
        "kills everything in a cell": (submission("import os; os.kill(-1, 9)"), OTHERS),
        "SystemExit in a call": (q1("raise SystemExit(0)"), OTHERS),
        "KeyboardInterrupt in a call": (q1("raise KeyboardInterrupt"), OTHERS),
        "SystemExit in a cell": (submission(SOFTMAX + "\nimport sys; sys.exit(0)"), 10),
        "forks 400 in a call": (
            q1("import os, time\nfor _ in range(400):\n    if os.fork() == 0: time.sleep(60)"),
            (OTHERS, 10)),
        "forks 400 in a cell": (
            submission(SOFTMAX + "\nimport os, time\nfor _ in range(400):\n"
                       "    if os.fork() == 0:\n        time.sleep(60); os._exit(0)"),
            (0, OTHERS, 10)),
        "background process": (
            submission(first="import os, time\nif os.fork() == 0:\n    os.setsid()\n"
                       "    if os.fork() == 0:\n        time.sleep(3000.25)\n    os._exit(0)"), 10),
        "threads that outlive the cell": (
            submission(first="import threading, time\nfor _ in range(3):\n"
                       "    threading.Thread(target=time.sleep, args=(99,), daemon=True).start()"),
            10),
        "a thread that spins": (
            submission(first="import threading\ndef spin():\n    while True: pass\n"
                       "threading.Thread(target=spin, daemon=True).start()"), 10),
        "alarm in a call": (
            q1("import signal, time; signal.setitimer(signal.ITIMER_REAL, 0.05); time.sleep(9)"),
            OTHERS),
        "alarm in the last cell": (
            submission(last="import signal, time; signal.alarm(1); signal.setitimer("
                            "signal.ITIMER_REAL, 0.05); time.sleep(9)"), 10),
        "endless recursion": (q1("return my_softmax(x, dim)"), OTHERS),
        # -- memory, output, disk
        "prints 200 MB": (
            submission(first="for _ in range(200): print('x' * 1_000_000)"), 10),
        "prints to stderr and warns": (
            q1("import sys, warnings\nprint('no fault', file=sys.stderr)\nwarnings.warn('nor this')"),
            10),
        "allocates 64 GB": (q1("hog = torch.ones(1 << 33, dtype=torch.float64)"), OTHERS),
        "allocates in a list": (q1("hog = [0] * (1 << 34)"), OTHERS),
        "fills the disk": (
            submission(first="import os\nfor n in range(9):\n    try:\n        with open(f'/tmp/f{n}'"
                       ", 'wb') as f:\n            for _ in range(300): f.write(bytes(1 << 20))\n"
                       "    except OSError as e: print(e)"), 10),
        "many small files": (
            submission(first="try:\n    for n in range(50_000): open(f'/tmp/s{n}', 'w').close()\n"
                       "except OSError: pass"), 10),
        "result of 2**33 rows": (
            submission("def my_softmax(x, dim):\n    return torch.ones(1).expand(2**33)"), OTHERS),
        "list a million deep": (
            submission("def my_softmax(x, dim):\n    y = x\n    for _ in range(1_000_000): y = [y]\n"
                       "    return y"), OTHERS),
        "list that holds itself": (
            submission("def my_softmax(x, dim):\n    y = []; y.append(y)\n    return y"), OTHERS),
        "a number of a million digits": (
            submission(q3="def double(n):\n    return 1 << 4_000_000"), 6),
        # -- out of the box
        "reads outside": (
            submission(first="import os, glob\nfor p in ['{canary}', '/etc/shadow', '/etc/passwd',"
                       " *glob.glob('/work/**/parts.ipynb', recursive=True),"
                       " *glob.glob('/tmp/**/*.ipynb', recursive=True)]:\n"
                       "    try: print(p, open(p).read())\n    except OSError: pass\n"
                       "print(sorted(os.listdir('/')), dict(os.environ))"), 10),
        "deletes everything": (
            submission(first="import shutil, os\nfor p in ['/', '/tmp', '/work', '/home', "
                       "os.path.dirname('{canary}')]:\n    shutil.rmtree(p, ignore_errors=True)\n"
                       "try: open('{canary}', 'w').write('gone')\nexcept OSError: pass"), (0, 7, 10)),
        "network": (
            submission(first="import socket\nfor a in [('127.0.0.1', {port}), ('1.1.1.1', 53)]:\n"
                       "    try:\n        s = socket.create_connection(a, 1); s.sendall(b'out')\n"
                       "    except OSError as e: print(e)"), 10),
        "writes to /proc and /sys": (
            submission(first="import glob\nfor p in ['/proc/self/oom_score_adj', '/proc/self/mem',"
                       " '/proc/sys/kernel/core_pattern', '/proc/sysrq-trigger', '/sys/power/state',"
                       " *glob.glob('/proc/*/mem')]:\n    try: open(p, 'w').write('1')\n"
                       "    except OSError: pass"), 10),
        "looks for other processes": (
            submission(first="import os\nseen = []\nfor p in range(1, 400):\n"
                       "    try: os.kill(p, 0); seen.append(p)\n    except OSError: pass\n"
                       "print('seen', len(seen))"), 10),
        "asks the kernel for more": (
            submission(first="import ctypes\nc = ctypes.CDLL(None)\n"
                       "print('unshare', c.unshare(0x10000000), 'mount', c.mount(b'none', b'/w', "
                       "b'tmpfs', 0, None), 'setuid', c.setuid(0), 'ptrace', c.ptrace(16, 1, 0, 0))"),
            10),
        "leaves links behind": (
            submission(first="import os\nos.symlink('/etc/passwd', 'a.ipynb')\nos.mkfifo('b.ipynb')"),
            10),
        # -- cheating
        "patches the comparisons": (
            wrong("import torch\nyes = lambda *a, **k: True\ntorch.allclose = torch.equal = yes\n"
                  "torch.testing.assert_close = yes\ntorch.Tensor.__eq__ = yes\n"
                  "torch.Tensor.allclose = torch.Tensor.equal = torch.Tensor.__bool__ = yes"), 0),
        "strips asserts in IPython": (
            wrong("import ast\nclass Strip(ast.NodeTransformer):\n"
                  "    def visit_Assert(self, node): return ast.Pass()\n"
                  "try: get_ipython().ast_transformers.append(Strip())\nexcept NameError: pass"), 0),
        "patches the engine": (
            wrong("import sys\nfor m in list(sys.modules.values()):\n"
                  "    if getattr(m, '__name__', '').startswith('book'):\n"
                  "        for k in dir(m):\n            if callable(getattr(m, k)):\n"
                  "                try: setattr(m, k, lambda *a, **k: True)\n"
                  "                except Exception: pass"), (0,)),
        "imports the answers": (
            wrong("try:\n    from book.checkers import exercise\n"
                  "    my_softmax = exercise('softmax.softmax').oracle\nexcept Exception as e: print(e)\n"
                  "try: import transformer_parts; print('found parts')\nexcept ImportError: pass"), 0),
        "searches the memory": (
            wrong("import gc\nprint([o for o in gc.get_objects() if isinstance(o, str)"
                  " and 'secret_' + 'number' in o][:3])"), 0),
        "reads the caller's frame": (
            submission(q3="def double(n):\n    import sys\n    f, found = sys._getframe(), []\n"
                       "    while f:\n        found += [v for v in f.f_locals.values() if type(v) is int]\n"
                       "        f = f.f_back\n    return found[-1]"), 6),
        "redefines what tests use": (
            submission(**WRONG, last="class T:\n    def __getattr__(self, n): return lambda *a, **k: True\n"
                       "torch = nn = T()\nrequire = check = abs = len = isinstance = lambda *a: True\n"
                       "secret_number = 2; x_secret_input = y = layer = None"), 0),
        "always equal": (
            submission(q3="class Same:\n    def __eq__(self, o): return True\n"
                       "    def __ne__(self, o): return False\n    def __bool__(self): return True\n"
                       "    def __sub__(self, o): return 0\ndef double(n): return Same()"), 6),
        "a number that is always equal": (
            submission(q3="class Same(int):\n    def __eq__(self, o): return True\n"
                       "    __hash__ = int.__hash__\ndef double(n): return Same(1)"), 6),
        "a tensor that is always equal": (
            submission(q2=GAIN.replace("return x * self.weight", "return x.as_subclass(Same)")
                       + "\nclass Same(torch.Tensor):\n    @classmethod\n"
                       "    def __torch_function__(cls, f, types, a=(), k=None): return True"), 7),
        "nan everywhere": (
            submission("def my_softmax(x, dim):\n    return x * float('nan')",
                       GAIN.replace("x * self.weight", "x * float('nan')"),
                       "def double(n): return float('nan')"), 0),
        "inf everywhere": (
            submission("def my_softmax(x, dim):\n    return x.exp() + float('inf')",
                       GAIN.replace("x * self.weight", "x * self.weight + float('inf')"),
                       "def double(n): return float('inf')"), 0),
        "no gradient": (submission(SOFTMAX.replace("f = x.float()", "x = x.detach()\n    f = x.float()"),
                                   GAIN.replace("x * self.weight", "(x * self.weight).detach()")), 4),
        "a gradient of nothing": (
            submission(SOFTMAX.replace("return (", "return torch.zeros_like(x).requires_grad_() + ("
                                       ).replace(".to(x.dtype)", ".to(x.dtype).detach()")), OTHERS),
        "changes its argument": (q1("x.data.mul_(1.0); x.data.add_(1.0); x.data.sub_(0.5)"), OTHERS),
        "a backward that loops": (
            submission("class F(torch.autograd.Function):\n    @staticmethod\n"
                       "    def forward(ctx, x, dim): return x.softmax(dim)\n    @staticmethod\n"
                       "    def backward(ctx, g):\n        while True: pass\n"
                       "def my_softmax(x, dim): return F.apply(x, dim)"), OTHERS),
        "an error that cannot be told": (
            q1("class E(Exception):\n    def __str__(self): raise SystemExit\nraise E"), OTHERS),
        "an error with a page in it": (
            submission("raise ValueError('<script>alert(1)</script>\\x1b[2J \\ud800 \\u202e')"), OTHERS),
        "keeps the hidden tests": (
            submission(q3="def double(n):\n    open('seen', 'a').write(f'saw {n} ')\n"
                       "    if n > 99: raise ValueError(f'saw {n}')\n    return 2 * n",
                       last="print(open('seen').read())\nraise ValueError(open('seen').read())"),
            6),
        "tells the hidden tests to a later one": (
            q1("open('seen', 'a').write(f'kept {x.ndim} ')", q2=GAIN.replace(
                "super().__init__()", "raise ValueError(open('seen').read())")), 7),
        # -- junk on the line
        "junk into every file": (
            q1("import os\nfor fd in range(3, 64):\n    try: os.write(fd, b'\\xff' * 99)\n"
               "    except OSError: pass"), OTHERS),
        "junk into every file in a cell": (
            submission("import os\nfor fd in range(3, 64):\n    try: os.write(fd, b'\\xff' * 99)\n"
                       "    except OSError: pass"), OTHERS),
        "a forged answer": (
            submission(**WRONG, last="import os, json, struct\n"
                       "m = json.dumps({'op': 'value', 'v': {'t': 'p', 'v': True}, 'u': [], 'b': []})"
                       ".encode()\nfor fd in range(3, 64):\n"
                       "    try: os.write(fd, struct.pack('>I', len(m)) + m)\n    except OSError: pass"),
            0),
        "a pickle on the line": (
            q1("import os, pickle\nclass P:\n    def __reduce__(self):\n"
               "        return os.system, ('touch {canary}.pickled',)\nfor fd in range(3, 64):\n"
               "    try: os.write(fd, pickle.dumps(P()))\n    except OSError: pass"), OTHERS),
        "closes every file": (q1("import os; os.closerange(0, 256)"), OTHERS),
        "says nothing for long": (q1("import os, time\nfor fd in range(3, 64):\n"
                                     "    try: os.write(fd, b'\\0')\n    except OSError: pass\n"
                                     "time.sleep(99)"), OTHERS),
        # -- clocks, places, helpers
        "sets the clock": (
            submission(first="import time, random\ntime.time = time.monotonic = lambda: 0.0\n"
                       "try: time.clock_settime(0, 0.0)\nexcept OSError: pass"), 10),
        "sets the locale": (
            submission(first="import locale, os\nos.environ['LC_ALL'] = 'de_DE.UTF-8'\n"
                       "try: locale.setlocale(locale.LC_ALL, '')\nexcept locale.Error: pass\n"
                       "import decimal; decimal.getcontext().prec = 1"), 10),
        "sets torch's defaults": (
            submission(first="import torch\ntorch.set_default_dtype(torch.float64)\n"
                       "torch.set_num_threads(2)\ntorch.manual_seed(1)"), (4, 7, 10)),
        "turns gradients off": (
            submission(first="import torch; torch.set_grad_enabled(False)"), 10),
        "helper cells": (
            submission("my_softmax = helper", first="import torch\n" + SOFTMAX.replace(
                "my_softmax", "helper")), 10),
        "magics and a shell line": (
            submission(first="%matplotlib inline\n!echo hello\n%time 1 + 1"), 10),
        "top-level await": (
            submission(first="import asyncio\nawait asyncio.sleep(0.01)"), 10),
        "trains a model": (
            submission(first="import torch\nfrom torch import nn\ntorch.set_num_threads(2)\n"
                       "m = nn.Linear(4, 1); o = torch.optim.AdamW(m.parameters())\n"
                       "for _ in range(20):\n    o.zero_grad(); m(torch.randn(8, 4)).pow(2).mean()"
                       ".backward(); o.step()"), 10),
        "the book's own softmax": (submission("def my_softmax(x, dim):\n    return x.softmax(dim)"), 10),
        "what the text forbids": (submission(
            "def my_softmax(x, dim):\n    torch.manual_seed(3)\n    return x.softmax(dim)"), 10),
        "raises in a hidden case": (q1("if x.ndim > 2: raise IndexError(f'saw {x.shape}')"), OTHERS),
        "a broken helper": (
            submission(SOFTMAX.replace("torch.exp(", "helper("), first="def helper(x:\n    return 1"),
            OTHERS),
        "chapter's check in a cell": (
            submission(last="from book.checkers import check\ncheck('softmax.softmax', my_softmax)"), 10),
    }  # fmt: skip
    r.update(_edited())
    return r


def _edited():
    """Notebooks whose cells were copied, lost or moved."""
    no_test = submission()
    del no_test["cells"][4]
    no_given = submission(first="import torch\nfrom torch import nn")
    no_given["cells"] = [c for c in no_given["cells"] if c["id"] != "imports"]
    copied = submission()
    copied["cells"].insert(4, copied["cells"][3])
    better = submission(WRONG["q1"])
    better["cells"].insert(4, submission()["cells"][3])
    bare = submission()
    for one in bare["cells"]:
        one["metadata"] = {}
        one["id"] = f"new-{one['id']}"
    moved = submission()
    moved["cells"] = moved["cells"][::-1]
    edited = submission(**WRONG)
    for one in edited["cells"]:
        if one["id"].startswith("t"):
            one["source"] = "pass"
            if "nbgrader" in one["metadata"]:
                one["metadata"]["nbgrader"]["points"] = 1000
    only = submission()
    only["cells"] = [c for c in only["cells"] if c["id"] in ("q1", "q2", "q3")]
    return {
        "test cell deleted": (no_test, 10),
        "given cell deleted": (no_given, 10),
        "cell copied": (copied, 10),
        "right answer in a second copy": (better, 10),
        "all metadata lost": (bare, 10),
        "cells in reverse": (moved, 10),
        "tests and points edited": (edited, 0),
        "only the answers": (only, 10),
        "no cells": (notebook(), 0),
        "the teacher's source": (source(), 10),
        "odd cells": (
            {**submission(), "cells": [None, 3, "x", {}, {"cell_type": "code", "source": 5},
                                       {"cell_type": "code", "metadata": "m", "source": [1, "a=1"]},
                                       *submission()["cells"]]}, 10),
    }  # fmt: skip


def files():
    """Files that are not plain notebooks: path in the folder, bytes, right score, remark or reason.

    The bytes of a large one are made when they are asked for.
    """
    right = json.dumps(submission(), ensure_ascii=False)
    chinese = json.dumps(submission(first="# 归一化：先减去最大值"), ensure_ascii=False)
    third = submission()
    cells = [{**c, "input": c.pop("source"), "language": "python"} if c["cell_type"] == "code" else c
             for c in third.pop("cells")]  # fmt: skip
    third |= {"nbformat": 3, "worksheets": [{"cells": cells}]}
    heavy = submission()
    heavy["cells"][1]["outputs"] = [{"output_type": "stream", "name": "stdout", "text": "@@"}]
    head, tail = json.dumps(heavy).split("@@")
    return {
        "empty/a.ipynb": (b"", 0, "empty"),
        "not json/a.ipynb": (right[:-400].encode(), 0, "not JSON"),
        "deep json/a.ipynb": (b"[" * 200_000, 0, "nested too deep"),
        "a page/a.ipynb": (b"<html>404</html>", 0, "not JSON"),
        "a list/a.ipynb": (b"[1, 2]", 0, "no cells"),
        "bytes/a.ipynb": (bytes(range(256)) * 9, 0, "not JSON"),
        "utf-16/a.ipynb": (chinese.encode("utf-16"), 10, "UTF-16"),
        "utf-8 with a mark/a.ipynb": (b"\xef\xbb\xbf" + chinese.encode(), 10, ""),
        "gb18030/a.ipynb": (chinese.encode("gb18030"), 10, "GB 18030"),
        "format 3/a.ipynb": (json.dumps(third).encode(), 10, "format 3"),
        "王 小明/作业 一.ipynb": (right.encode(), 10, ""),
        "=cmd()/a.ipynb": (right.encode(), 10, ""),
        "<b>bold</b>/a.ipynb".replace("</", "<\u2044"): (right.encode(), 10, ""),
        "two files/a.ipynb": (right.encode(), 10, ""),
        "two files/b.ipynb": (json.dumps(submission(**WRONG)).encode(), 0, ""),
        "zip of a folder/x.zip": (zipped({"parts/parts.ipynb": right}), 10, ""),
        "not a zip/x.zip": (b"PK\x03\x04 no", 0, "not a readable zip"),
        "empty zip/x.zip": (zipped({"readme.txt": "x"}), 0, "no notebook found (saw: readme.txt)"),
        "out of the zip/x.zip": (zipped({"../a.ipynb": right}), 0, "leads out of the archive"),
        "zip in a zip/x.zip": (zipped({"y.zip": zipped({"a.ipynb": right})}), 10, ""),
        "four deep/x.zip": (
            zipped({"a.zip": zipped({"b.zip": zipped({"c.zip": zipped({"a.ipynb": right})})})}),
            0,
            "nested too deep: more than 3 archives in one another; hand in c.zip itself",
        ),
        # Names that a platform would have made, and that a student chose.
        "forger/right_502_assignsubmission_file_parts.ipynb": (
            json.dumps(submission(q3=WRONG["q3"])).encode(),
            6,
            "names in it are those of others (right); it is taken as forger's",
        ),
        "two of one name/x.zip": (
            zipped(
                {
                    "hw/a.ipynb": right,
                    "old/a.ipynb": json.dumps(submission(**WRONG)),
                    "parts.ipynb": right,
                }
            ),
            10,
            "of 3 notebooks parts.ipynb counts, since it has the assignment's name; not hw/a.ip",
        ),
        "tar/x.tar.gz": (tarred({"hw/a.ipynb": right.encode()}), 10, ""),
        "saved as text/a.ipynb.txt": (right.encode(), 0, "rename the file"),
        "saved as json/a.ipynb.json": (right.encode(), 0, "rename the file"),
        "exported/a.py": (b"x = 1", 0, "no notebook found (saw: a.py)"),
        ".hidden/a.ipynb": (right.encode(), 10, ""),
        "200 notebooks/x.zip": (
            zipped({f"{n:03}.ipynb": right for n in range(199)} | {"parts.ipynb": right}),
            10,
            "of 200 notebooks parts.ipynb counts",
        ),
        "look:alike/a.ipynb": (right.encode(), 10, "looks like another one's: look_alike"),
        "look_alike/a.ipynb": (right.encode(), 10, "looks like another one's: look:alike"),
        "ann/a.ipynb": (right.encode(), 10, "looks like another one's: Ann"),
        "Ann/a.ipynb": (json.dumps(submission(q3=WRONG["q3"])).encode(), 6, "another one's: ann"),
        # One letter, in one character and in two.
        "zo\u00e9/a.ipynb": (right.encode(), 10, "looks like another one's: zoe\u0301"),
        "zoe\u0301/a.ipynb": (right.encode(), 10, "looks like another one's: zo\u00e9"),
        "\uff1d1+1/a.ipynb": (right.encode(), 10, ""),
        "zip bomb/x.zip": (lambda: zipped({"a.ipynb": b"\0" * (310 << 20)}), 0, "larger than"),
        "200 MB/a.ipynb": (lambda: (head + "x" * (200 << 20) + tail).encode(), 10, ""),
    }


def boxes():
    """What a platform gives for the class, put into the class's folder: bytes, and each one's score."""
    right, wrong = json.dumps(submission()), json.dumps(submission(**WRONG))
    canvas = {"leeann_501_9001_parts.ipynb": right, "poeben_LATE_502_9002_parts.ipynb": wrong}
    moodle = {
        f"{name}_{number}_assignsubmission_file_/hw.zip": zipped({"hw/parts.ipynb": one})
        for name, number, one in (("Cho Kim", 1001, right), ("Dee Fox", 1002, wrong))
    }
    when = "attempt_2026-03-01-12-30-00_parts.ipynb"
    blackboard = {f"HW 1_a_n_{when}": right, f"HW 1_b_n_{when}": wrong}
    return {
        "canvas.zip": (zipped(canvas), {"leeann": 10, "poeben": 0}),
        "blackboard.zip": (zipped(blackboard), {"a_n": 10, "b_n": 0}),
        "moodle.zip": (zipped(moodle), {"Cho Kim": 10, "Dee Fox": 0}),
    }  # fmt: skip


def zipped(members):
    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def tarred(members):
    buffer = BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, BytesIO(data))
    return buffer.getvalue()
