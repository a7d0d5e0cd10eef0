from holdfast.testing.crash.matrix import CrashMatrix as CrashMatrix, CrashReport as CrashReport
