# A login shell sets PATH anew, without the programs that pip and uv install.
PATH="/sandbox/.local/bin:$PATH"
