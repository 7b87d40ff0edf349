"""For video.py and serving.py: where an example is, installed or in the source tree; and, in the tree, the
Python modules and the library of the newest build."""
import os
import pathlib
import sys


def find(name):
    """The folder examples/NAME, ready to be imported from."""
    sys.dont_write_bytecode = True  # the source tree stays as it is
    here = pathlib.Path(__file__).resolve().parent
    source = here.parent.parent
    folder = next((f for f in (here.parent / "examples" / name, source / "examples" / name) if f.is_dir()), None)
    if not folder:
        sys.exit(f"examples/{name} is neither installed nor in the source tree")
    if (source / "python/cede.py").exists():
        sys.path.insert(0, str(source / "python"))
        # a build that was only set up has a link to nothing
        built = [p for p in source.glob("build*/libcede/libcede.so.0") if p.exists()]
        if built:
            os.environ.setdefault("CEDE_LIBRARY", str(max(built, key=lambda p: p.stat().st_mtime)))
    sys.path.insert(0, str(folder))
    return folder
