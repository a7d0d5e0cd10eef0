from holdfast.controller.manager import (
    ControllerOptions as ControllerOptions,
    run_controller as run_controller,
)
