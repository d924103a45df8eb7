"""The decode tests and mutated inputs, with every kernel built under AddressSanitizer and UndefinedBehaviorSanitizer.

The sanitized extensions go to build/sanitize, never in place. PYTHONMALLOC=malloc matters as much as the sanitizer: pymalloc
would put small buffers side by side in one arena, where an over-read is an ordinary read. The inputs of the fuzzer lie in blocks
of exactly their size for the same reason.

    python tests/sanitize.py [-n INPUTS] [pytest arguments]
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIBRARY = ROOT / "build" / "sanitize" / "lib"
REPORTS = ROOT / "build" / "sanitize" / "report"  # .PID is added; on stderr they would end in pytest's capture and go with it
TESTS = ("tests/records", "tests/hostile", "tests/c_api", "tests/test_headers.py")
INPUTS = 200_000


def runtime(compiler: str, name: str) -> str:
    """Path of a sanitizer's shared library; it has to be preloaded, because the interpreter itself is not instrumented."""
    found = subprocess.run([compiler, f"-print-file-name={name}"], capture_output=True, text=True, check=False).stdout.strip()
    if not os.path.isabs(found):  # the bare name back means: not found
        sys.exit(f"make sanitize needs {name}, and {compiler} has none (Debian: libgcc-*-dev, Fedora: libasan libubsan)")
    return str(Path(found).resolve())


def failed(command: list[str], code: int) -> None:
    for report in sorted(REPORTS.parent.glob(REPORTS.name + ".*")):
        print(report.read_text(errors="replace")[:8000])
    sys.exit(f"sanitized run failed ({code}): {' '.join(command[1:])}")


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # with what has been started
    arguments = sys.argv[1:]
    inputs = INPUTS
    if arguments[:1] == ["-n"]:
        inputs, arguments = int(arguments[1]), arguments[2:]
    compiler = shutil.which("gcc") or sys.exit("make sanitize needs gcc, which is not on PATH")
    preload = ":".join(runtime(compiler, name) for name in ("libasan.so", "libubsan.so"))

    build = os.environ | {"FASTFETCH_SANITIZE": "1", "CC": compiler, "LDSHARED": f"{compiler} -shared"}
    folders = ["--build-lib", LIBRARY, "--build-temp", ROOT / "build" / "sanitize" / "tmp"]
    command = [sys.executable, "setup.py", "-q", "build", *folders, "-j", str(os.cpu_count())]
    done = subprocess.run(command, cwd=ROOT, env=build, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        sys.exit(done.stdout + "\nthe sanitized build failed")

    run = os.environ | {
        "LD_PRELOAD": preload,
        # Leaks: CPython frees little at exit. A refused allocation has to give NULL, as it does without the sanitizer.
        "ASAN_OPTIONS": f"detect_leaks=0:allocator_may_return_null=1:detect_stack_use_after_return=1:log_path={REPORTS}",
        "UBSAN_OPTIONS": f"print_stacktrace=1:halt_on_error=1:log_path={REPORTS}",
        "PYTHONMALLOC": "malloc",
        "PYTHONPATH": os.pathsep.join([str(LIBRARY), str(ROOT), str(ROOT / "tests")]),
        "FASTFETCH_SANITIZED": "1",
    }
    # A run that silently took the ordinary build would be green and worth nothing.
    where = subprocess.run(
        [sys.executable, "-P", "-c", "import fastfetch; print(fastfetch.__file__)"],
        cwd=ROOT, env=run, stdout=subprocess.PIPE, text=True, check=False,
    ).stdout.strip()  # fmt: skip
    if not where.startswith(str(LIBRARY)):
        sys.exit(f"the sanitized fastfetch in {LIBRARY} was not the one imported: {where!r}")

    for old in REPORTS.parent.glob(REPORTS.name + ".*"):
        old.unlink()
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:benchmark", "-o", f"pythonpath={LIBRARY} . tests"]
    tests = [sys.executable, "-P", "-m", "pytest", *options, *TESTS, *arguments]
    fuzzer = [sys.executable, "tests/hostile/fuzz.py", str(inputs)]
    with tempfile.TemporaryFile("w+") as fuzzed:
        # A session of its own: it has a child, which has to go with it.
        fuzzing = subprocess.Popen(fuzzer, cwd=ROOT, env=run, stdout=fuzzed, stderr=fuzzed, start_new_session=True)
        try:
            code = subprocess.run(tests, cwd=ROOT, env=run, check=False).returncode
            if code:
                failed(tests, code)
            code = fuzzing.wait()  # it has had a core of its own meanwhile
        finally:
            if fuzzing.poll() is None:
                os.killpg(fuzzing.pid, signal.SIGKILL)
        fuzzed.seek(0)
        print(fuzzed.read(), end="")
        if code:
            failed(fuzzer, code)
    print(f"sanitized: decode tests and {inputs:,} mutated inputs, no fault")


if __name__ == "__main__":
    main()
