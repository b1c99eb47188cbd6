"""Makes the trees `src` and `dst`, and a state file that an older version wrote when it planned them."""

import os
import pathlib
import sqlite3

MODIFIED = 1709294400123456789
OLDER = 1706745600000000000

files = {
    "src/one": "one",
    "src/same/a": "alike",
    "src/same/b": "alike",
    "src/sub/new": "new",
    "src/sub/deep/changed.txt": "newer",
    "dst/same/a": "alike",
    "dst/same/b": "alike",
    "dst/sub/deep/changed.txt": "old",
    "dst/gone/left": "left",
}
for path, text in files.items():
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o644)
os.link("src/one", "src/two")
os.symlink("one", "src/link")
for tree in "src", "dst":
    for folder, _, names in os.walk(tree, topdown=False):
        for name in names + ["."]:
            os.utime(os.path.join(folder, name), ns=(MODIFIED, MODIFIED), follow_symlinks=False)
# The time in the plan: a file that changed since would be kept.
os.utime("dst/sub/deep/changed.txt", ns=(OLDER, OLDER))

linked = os.stat("src/one")
script = pathlib.Path(__file__).with_suffix(".sql").read_text()
values = {
    "place": os.getcwd(),
    "device": linked.st_dev,
    "inode": linked.st_ino,
    "uid": linked.st_uid,
    "gid": linked.st_gid,
}
for name, value in values.items():
    script = script.replace("{" + name + "}", str(value))
sqlite3.connect("job.db").executescript(script)
