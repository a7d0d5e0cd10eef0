"""The frame headers that the engine adds to the output of a command."""

from holdfast.containers.image_transfer import demultiplex_output


def frame(stream, content):
    return bytes([stream, 0, 0, 0]) + len(content).to_bytes(4, "big") + content


def test_stdout_and_stderr_keep_order_and_truncated_last_frame():
    output = frame(1, b"unpacking ") + frame(2, b"ctr: no\n")
    assert demultiplex_output(output) == "unpacking ctr: no\n"
    assert demultiplex_output(output[:-3]) == "unpacking ctr: "
    assert demultiplex_output(b"") == demultiplex_output(b"\x01\x00") == ""
