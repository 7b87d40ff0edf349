"""video.py segment|transcribe OPTION...: the programs of examples/video, with lines of output for the bench."""
import runpy
import sys

import example

program = str(example.find("video") / (sys.argv[1] + ".py"))
sys.argv[:2] = [program]
sys.argv.append("--report")
runpy.run_path(program, run_name="__main__")
