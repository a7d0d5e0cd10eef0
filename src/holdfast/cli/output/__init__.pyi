from holdfast.cli.output.errors import (
    print_error as print_error,
    print_error_line as print_error_line,
    run_command as run_command,
)
from holdfast.cli.output.figures import (
    UNKNOWN as UNKNOWN,
    format_age as format_age,
    format_bytes as format_bytes,
    format_cores as format_cores,
)
from holdfast.cli.output.plain import (
    JSON_SCHEMA_VERSION as JSON_SCHEMA_VERSION,
    JsonRenderer as JsonRenderer,
    PlainRenderer as PlainRenderer,
    ProgressRenderer as ProgressRenderer,
    format_table as format_table,
    print_json as print_json,
    print_plan as print_plan,
    print_result as print_result,
    print_yaml as print_yaml,
    progress_renderer as progress_renderer,
    steps_renderer as steps_renderer,
)
from holdfast.cli.output.text import (
    echo as echo,
    escape_control_characters as escape_control_characters,
    supports_escapes as supports_escapes,
)
