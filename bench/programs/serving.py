"""examples/serving/server.py as a program of a scenario: finds it, the Python modules and, where nothing
is installed, the library that was built."""
import os
import pathlib
import runpy
import sys

sys.dont_write_bytecode = True  # the source tree stays as it is
here = pathlib.Path(__file__).resolve().parent
for example in (here.parent / "examples/serving", here.parent.parent / "examples/serving"):
    if (example / "server.py").exists():
        break
else:
    sys.exit("serving.py: examples/serving is neither installed nor in the source tree")
source = here.parent.parent
if (source / "python/cede.py").exists():
    sys.path.insert(0, str(source / "python"))
    built = sorted(source.glob("build*/src/client/libcede.so.0"), key=lambda p: p.stat().st_mtime)
    if built:
        os.environ.setdefault("CEDE_LIBRARY", str(built[-1]))
sys.path[:0] = [str(example), str(here)]
if sys.argv[1:] == ["--check"]:  # can it run here?
    import cede_queue
    sys.exit(cede_queue._lib is None)
sys.argv[0] = str(example / "server.py")
runpy.run_path(sys.argv[0], run_name="__main__")
