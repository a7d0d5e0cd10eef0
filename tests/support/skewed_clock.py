"""A skewed wall clock for one command, through the C library.

A node shares the clock of its kernel, so this simulates a machine with a wrong clock and a host with a
correct one. Only the wall clock is skewed; waits are not.
"""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>

static long offset(void) {
    const char *said = getenv("CLOCK_OFF_BY");
    return said ? atol(said) : 0;
}

int clock_gettime(clockid_t which, struct timespec *found) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int ended = real(which, found);
    if (ended == 0 && (which == CLOCK_REALTIME || which == CLOCK_REALTIME_COARSE)) found->tv_sec += offset();
    return ended;
}

time_t time(time_t *out) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out) *out = now.tv_sec;
    return now.tv_sec;
}

int gettimeofday(struct timeval *out, void *zone) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    out->tv_sec = now.tv_sec;
    out->tv_usec = now.tv_nsec / 1000;
    return 0;
}
"""


def skewed_clock_environment(seconds: int, folder: Path) -> dict[str, str]:
    """The environment in which a program's clock is that far from this machine's."""
    library = folder / "clock.so"
    words = ["cc", "-shared", "-fPIC", "-x", "c", "-o", str(library), "-", "-ldl"]
    subprocess.run(words, input=_SOURCE.encode(), check=True, capture_output=True)
    return {"LD_PRELOAD": str(library), "CLOCK_OFF_BY": str(seconds)}
