# The few commands a person types; meson and ninja do the work. `make help` lists them.
PREFIX ?= /usr/local
DESTDIR ?=
DEMO_ARGS ?=
BUILD := build

.PHONY: help demo check build test format static install clean
.DEFAULT_GOAL := help

help:
	@echo "make demo      build, and show scheduling on a software GPU (no GPU needed)"
	@echo "make check     everything: lint, gcc and clang builds, tests, sanitizers, short fuzzing"
	@echo "make build     build only: build/src/cli/cede"
	@echo "make test      build and run the tests once, without the rest of check"
	@echo "make static    one binary that needs only libc: build-static/src/cli/cede"
	@echo "make install   install what is built (PREFIX=$(PREFIX), DESTDIR=$(DESTDIR))"
	@echo "make format    clang-format the tree in place"
	@echo "make clean     remove what was built"

$(BUILD)/build.ninja:
	@meson setup $(BUILD) --prefix=$(PREFIX) >$(BUILD).log 2>&1 || { cat $(BUILD).log; exit 1; }
	@rm -f $(BUILD).log

demo:
	@scripts/deps demo
	@$(MAKE) --no-print-directory $(BUILD)/build.ninja
	@ninja -C $(BUILD) --quiet src/cli/cede
	@$(BUILD)/src/cli/cede demo $(DEMO_ARGS)

check:
	@scripts/deps check
	@scripts/check

build:
	@scripts/deps demo
	@$(MAKE) --no-print-directory $(BUILD)/build.ninja
	@ninja -C $(BUILD)

test: build
	@meson test -C $(BUILD) --no-rebuild --print-errorlogs

static:
	@scripts/deps demo
	@[ -e build-static/build.ninja ] || meson setup build-static -Dstatic_deps=true \
	    -Dbuildtype=release --prefix=$(PREFIX)
	@ninja -C build-static src/cli/cede
	@scripts/only-libc build-static/src/cli/cede
	@ls -l build-static/src/cli/cede

install: build
	@meson configure $(BUILD) --prefix=$(PREFIX)
	@ninja -C $(BUILD)
	@DESTDIR=$(DESTDIR) meson install -C $(BUILD) --no-rebuild

format:
	@find src include tests bench -name '*.[ch]' -exec clang-format -i {} +

clean:
	rm -rf build build-static build-check
