"""serving.py OPTION...: examples/serving/server.py as a program of a scenario. --check: can it run here?"""
import runpy
import sys

import example

folder = example.find("serving")
if sys.argv[1:] == ["--check"]:
    import cede
    sys.exit(not cede.available())
sys.argv[0] = str(folder / "server.py")
runpy.run_path(sys.argv[0], run_name="__main__")
