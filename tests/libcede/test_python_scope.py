"""python/cede_scope.py: what comes out of a scope, what ends it, and its leases. Without a GPU."""
import contextlib
import errno
import gc
import os
import subprocess
import sys
import threading
import unittest

import cede
import cede_graph
import cede_scope
import cede_slice
import cede_step

LONG_US = 60 * 10**6


class Scopes(unittest.TestCase):
    @contextlib.contextmanager
    def raises_errno(self, code):
        with self.assertRaises(OSError) as caught:
            yield
        self.assertEqual(caught.exception.errno, code)

    def test_all_tasks_end_with_the_block(self):
        for threads in (0, 4):
            done = []
            with cede_scope.Scope(threads) as scope:
                for i in range(50):
                    scope.fork(done.append, i)
                scope.fork(lambda: scope.fork(done.append, "by a task"))
                scope.join()
                self.assertFalse(scope.cancelled())
            self.assertEqual(set(done), {*range(50), "by a task"})

    def test_threads_run_tasks(self):
        meet = threading.Barrier(3)
        with cede_scope.Scope(2) as scope:
            for _ in range(3):
                scope.fork(lambda: meet.wait() < 0)

    def test_the_first_exception_comes_out(self):
        done = []

        def fails():
            raise KeyError("the model is gone")

        with self.assertRaisesRegex(KeyError, "the model is gone") as caught, cede_scope.Scope(1) as scope:
            while True:  # until it raises OSError
                scope.fork(fails)
        self.assertEqual(caught.exception.__context__.errno, errno.ECANCELED)

        with self.assertRaisesRegex(KeyError, "the model is gone"), cede_scope.Scope(0) as scope:
            scope.fork(fails)
            for i in range(5):
                scope.fork(done.append, i)
        self.assertEqual((done, scope._tasks), ([], {}))

        seen = []
        scope = cede_scope.Scope(1)
        self.addCleanup(scope.close)
        begun = threading.Event()

        def follows():
            begun.set()
            while not scope.cancelled():
                pass
            seen.append("cancelled")
            raise ValueError("what follows is no reason")

        scope.fork(follows)
        begun.wait()
        scope.fork(fails)
        for _ in range(2):
            with self.assertRaises(KeyError):
                scope.join()
        self.assertEqual(seen, ["cancelled"])
        with self.raises_errno(errno.EBUSY):
            scope.fork(print)
        self.assertEqual(scope._tasks, {})

    def test_what_cancels(self):
        with self.assertRaises(KeyError), cede_scope.Scope(0) as scope:
            scope.fork(self.fail)
            raise KeyError
        with self.raises_errno(errno.ECANCELED), cede_scope.Scope(0) as scope:
            scope.cancel()
            self.assertTrue(scope.cancelled())
            scope.fork(self.fail)
        with self.assertRaises(TimeoutError), cede_scope.Scope(0, timeout_us=100000) as scope:
            scope.fork(lambda: [None for _ in iter(scope.cancelled, True)])
        with self.assertRaises(TimeoutError), cede_scope.Scope(0, timeout_us=cede.TIMEOUT_NOW) as scope:
            scope.fork(self.fail)
        parent = cede_scope.Scope(0)
        with self.raises_errno(errno.ECANCELED), cede_scope.Scope(0, parent=parent) as scope:
            scope.fork(self.fail)
            parent.cancel()
            self.assertTrue(scope.cancelled())
        parent.close()

    def test_a_task_cannot_wait_for_its_scope(self):
        with self.raises_errno(errno.EDEADLK), cede_scope.Scope(0) as scope:
            scope.fork(scope.join)
        with self.raises_errno(errno.ECANCELED), cede_scope.Scope(0) as scope:
            scope.fork(scope.close)
            scope.fork(self.fail)

    def test_one_that_is_forgotten(self):
        cede_scope.Scope(0).fork(self.fail)
        gc.collect()

    def test_leases(self):
        pool = cede.Pool(gpu=False, max_concurrent_streams=1)
        self.addCleanup(pool.close)
        kept = []
        with cede_scope.Scope(0) as scope:
            self.assertFalse(hasattr(scope, "statistics"))
            scope.fork(lambda: kept.append(pool.try_acquire()))  # which nobody releases
            scope.fork(lambda: self.assertEqual(pool.statistics().active, 1))
        self.assertEqual(pool.statistics().active, 0)

        def waits():
            with pool.acquire(timeout_us=LONG_US):
                self.fail()

        with pool.acquire(), self.raises_errno(errno.ECANCELED), cede_scope.Scope(1) as scope:
            scope.fork(waits)
            while not pool.statistics().waiting:
                pass
            scope.cancel()
        with self.assertRaises(KeyError), cede_scope.Scope(0) as scope, pool.acquire(kernel=None):
            raise KeyError
        self.assertEqual(pool.statistics().active, 0)

    def test_numbers_that_functions_return(self):
        """None, 0 and what is no number are success, everywhere."""
        def task(value):
            with cede_scope.Scope(0) as scope:
                scope.fork(lambda: value)

        def run(**functions):
            cede_slice.run(cede_slice.Progress(), 1, **{"launch": lambda *_: None, **functions}, gpu=False)

        def loop(**functions):
            to_do = [True]
            functions = {"schedule": lambda _: bool(to_do) and to_do.pop() and made.add("a") is not None,
                         "launch": lambda _: None, "finish": lambda _: None, **functions}
            made = cede_step.Loop(**functions, gpu=False)
            made.join("a")
            try:
                made.run()
            finally:
                made.close()

        for what, call in (("task", task), ("launch", lambda v: run(launch=lambda *_: v)), ("save", lambda v: run(save=lambda _: v)),
                           ("launch", lambda v: loop(launch=lambda _: v)), ("finish", lambda v: loop(finish=lambda _: v)),
                           ("schedule", lambda v: loop(schedule=lambda _: v and v == -5 and v)),
                           ("step", lambda v: cede_graph.Cache(lambda *_: v, gpu=False).launch(7, 1))):
            for value in (None, 0, False, True, "text", []):
                call(value)
            for value, code in ((-errno.ENOSPC, errno.ENOSPC), (700, errno.EIO), (-errno.EAGAIN, errno.EIO)) if what != "schedule" else ((-5, 5),):
                with self.subTest(what=what, value=value), self.assertRaisesRegex(OSError, f"{what}.*{abs(value)}|No space") as e:
                    call(value)
                self.assertEqual(e.exception.errno, code)

    def test_slices_end_with_a_scope(self):
        progress = cede_slice.Progress()
        with cede_scope.Scope(0) as parent:
            scope = cede_scope.Scope(0, parent=parent)
            self.addCleanup(scope.close)

            def launch(first, *_):
                if first:
                    scope.cancel()
            with self.raises_errno(errno.ECANCELED):
                cede_slice.run(progress, 10**9, launch, gpu=False, scope=scope)
            self.assertIn("scope is cancelled", progress.error)
            self.assertGreater(progress.done, 0)
            scope.close()

    def test_requests_of_a_step_leave_with_a_scope(self):
        gone, ran = [], []

        def schedule(_step):
            return loop.add("a") is not None

        def finish(step):
            ran.extend(step.requests)
            mine.cancel()

        all_of_it, mine = cede_scope.Scope(0), cede_scope.Scope(0)
        loop = cede_step.Loop(schedule, lambda _: None, finish, lambda *a: gone.append(a), gpu=False, scope=all_of_it)
        loop.join("a", scope=mine)
        while loop.once():
            pass
        self.assertEqual((ran[:1], gone), (["a"], [("a", -errno.ECANCELED)]))
        all_of_it.cancel()
        with self.raises_errno(errno.ECANCELED):
            loop.once()
        loop.close()
        mine.close()
        all_of_it.close()

    def test_scopes_live_as_long_as_what_looks_at_them(self):
        done = []
        with cede_scope.Scope(0, parent=cede_scope.Scope(0)) as scope:
            gc.collect()
            scope.fork(done.append, 1)
        parent = cede_scope.Scope(0)
        scope = cede_scope.Scope(0, parent=parent)
        self.addCleanup(scope.close)
        parent.close()
        self.assertTrue(scope.cancelled())
        with self.raises_errno(errno.ECANCELED):
            scope.fork(self.fail)

        def finish(step):
            done.extend(step.requests)
            loop.leave("a")

        gone, early = [], cede_scope.Scope(0)
        loop = cede_step.Loop(lambda _: loop.add("a") is not None, lambda _: None, finish,
                              lambda *a: gone.append(a), gpu=False, depth=1, scope=cede_scope.Scope(0))
        self.addCleanup(loop.close)
        loop.join("a", scope=cede_scope.Scope(0))
        loop.join("b", scope=early)
        early.close()
        gc.collect()
        while loop.once():
            pass
        self.assertEqual((done, gone), ([1, "a"], [("b", -errno.ECANCELED), ("a", 0)]))

    def test_what_left_raises_comes_out_of_close_too(self):
        loop = cede_step.Loop(*[lambda _: 0] * 3, lambda *a: {}[a], gpu=False)
        loop.join("a")
        with self.assertRaises(KeyError):
            loop.close()
        loop.close()  # it is closed

    def run_program(self, program):
        subprocess.run([sys.executable, "-c", program], check=True, timeout=20,
                       env={**os.environ, "PYTHONPATH": os.path.dirname(cede.__file__)})

    def test_a_program_may_end_while_tasks_wait(self):
        for _ in range(5):  # not each of them finds a task that is about to begin
            self.run_program("import cede_scope\nscope = cede_scope.Scope(8)\nfor _ in range(100): scope.fork(int)\n")

    def test_a_child_may_end_while_its_parent_has_tasks(self):
        self.run_program("import os, signal, threading, cede_scope\n"
                         "with cede_scope.Scope(1) as scope:\n"
                         "    begun, ended = threading.Event(), threading.Event()\n"
                         "    scope.fork(lambda: (begun.set(), ended.wait()))\n"
                         "    begun.wait()\n"
                         "    if os.fork() == 0:\n"
                         "        signal.alarm(15)  # a child that hangs ends, too\n"
                         "        raise SystemExit\n"
                         "    assert os.wait()[1] == 0\n"
                         "    ended.set()\n")


unittest.main()
