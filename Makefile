# The few commands a person types; meson and ninja do the work. `make help` lists them.
PREFIX ?= /usr/local
DESTDIR ?=
DEMO_ARGS ?=

# What root builds in a user's tree has no commit in its version, because git refuses, and that user could neither
# build nor remove it afterwards: so it is built as the tree's owner. A cache of a compiler is that user's, too.
AS_OWNER = $(shell as="runuser -u $$(stat -c %U .) -- env -u HOME"; \
    [ "$$(id -u)" != 0 ] || ! $$as test -w "$$PWD" 2>/dev/null || echo "$$as")
# $(call as_root,DIR,COMMAND): what may need root, as some tests; what it leaves in DIR becomes the owner's.
as_root = trap : INT; $(2); status=$$?; [ "$$(id -u)" != 0 ] || find $(1) -path '*/debian13' -prune -o \
    -user root -exec chown -h --reference=. {} +; exit $$status

# $(call configure,DIR,OPTIONS): once; what meson says is shown only when it fails.
configure = [ -e $(1)/build.ninja ] || { log=$$(mktemp) && \
    { $(AS_OWNER) meson setup $(1) --prefix=$(PREFIX) $(2) >$$log 2>&1 || { cat $$log; rm -f $$log; exit 1; }; } \
    && rm -f $$log; }

.PHONY: help demo check build test static deb tarball install format clean
.DEFAULT_GOAL := help

help:
	@echo "make demo      build, and show scheduling on a software GPU (no GPU needed)"
	@echo "make check     everything: lint, gcc and clang builds, tests, sanitizers, short fuzzing"
	@echo "make build     build only: build/src/cli/cede"
	@echo "make test      build and run the tests once, without the rest of check"
	@echo "make static    one binary that needs only libc: build-static/src/cli/cede"
	@echo "make deb       Debian packages, in build-deb/"
	@echo "make tarball   the static binary with install.sh, in build-tarball/"
	@echo "make install   install what is built (PREFIX=$(PREFIX), DESTDIR=$(DESTDIR))"
	@echo "make format    clang-format the tree in place"
	@echo "make clean     remove what was built"

demo:
	@echo "demo: compiles cede (25 MB in build/) and runs it for 40 s; a minute of processor time in all"
	@scripts/deps demo
	@$(call configure,build)
	@$(AS_OWNER) scripts/compile build src/cli/cede
	@build/src/cli/cede demo $(DEMO_ARGS)

check:
	@echo "check: a first run takes 13 minutes on two cores and 1 GB in build-check/, later ones half; each step reports"
	@scripts/deps check
	@$(call as_root,build-check,scripts/check)

build:
	@scripts/deps demo build
	@$(call configure,build)
	@$(AS_OWNER) scripts/compile build

test:
	@scripts/deps check test
	@$(MAKE) --no-print-directory build
	@$(call as_root,build,meson test -C build --no-rebuild --print-errorlogs -t 4 --num-processes $$((2 * $$(nproc))))

static:
	@scripts/deps demo static
	@$(call configure,build-static,-Dstatic_deps=true -Dbuildtype=release)
	@$(AS_OWNER) scripts/compile build-static src/cli/cede
	@scripts/only-libc build-static/src/cli/cede
	@ls -l build-static/src/cli/cede

deb:
	@echo "deb: compiles cede and makes packages of it; a minute of processor time, 60 MB in build-deb/, of which 5 MB stay"
	@scripts/deps deb
	@$(AS_OWNER) scripts/deb

tarball:
	@scripts/deps tarball
	@$(AS_OWNER) scripts/tarball

install: build
	@$(AS_OWNER) meson configure build -Dprefix=$(PREFIX)
	@$(AS_OWNER) ninja -C build --quiet >/dev/null
	@$(call as_root,build,DESTDIR=$(DESTDIR) meson install -C build --no-rebuild)
	@[ -n "$(DESTDIR)" ] || [ "$$(id -u)" != 0 ] || ldconfig

format:
	@find src libcede include tests bench -name '*.[ch]' -exec clang-format -i {} +

clean:
	rm -rf build build-static build-check build-deb build-tarball
