"""video.py segment|transcribe OPTION...: the programs of examples/video, wherever they are, with lines of
output for the bench and the library of the build they belong to, if there is one."""
import os
import pathlib
import runpy
import sys

here = pathlib.Path(__file__).resolve().parent
for folder in (here.parent.parent / "examples/video", here.parent / "examples/video"):
    if (folder / "common.py").exists():
        break
for build in ("build-static", "build"):
    library = here.parent.parent / build / "src/client/libcede.so.0"
    if library.exists():
        os.environ.setdefault("CEDE_LIBRARY", str(library))
sys.path.insert(0, str(folder))
program = str(folder / (sys.argv[1] + ".py"))
sys.argv[:2] = [program]
sys.argv.append("--report")
runpy.run_path(program, run_name="__main__")
