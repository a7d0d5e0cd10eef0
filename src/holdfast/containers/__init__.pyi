from holdfast.containers import labels as labels
from holdfast.containers.client import (
    ContainerEngine as ContainerEngine,
    EngineFacts as EngineFacts,
    engine_address as engine_address,
    engine_endpoint as engine_endpoint,
    normalize_address as normalize_address,
)
from holdfast.containers.containers import (
    ALL_GPUS as ALL_GPUS,
    ContainerView as ContainerView,
    container_logs as container_logs,
    create_container as create_container,
    device_requests as device_requests,
    find_container as find_container,
    follow_logs as follow_logs,
    list_containers as list_containers,
    reattach_network as reattach_network,
    remove_container as remove_container,
    rename_container as rename_container,
    set_restart_policy as set_restart_policy,
    start_container as start_container,
    stop_container as stop_container,
    unpause_container as unpause_container,
    wait_for_exit as wait_for_exit,
)
from holdfast.containers.errors import (
    is_disk_full as is_disk_full,
    is_transient as is_transient,
    translate_errors as translate_errors,
)
from holdfast.containers.exec import (
    CommandResult as CommandResult,
    RunningCommand as RunningCommand,
    read_directory as read_directory,
    read_file as read_file,
    replace_directory as replace_directory,
    run_in_container as run_in_container,
    write_private_file as write_private_file,
)
from holdfast.containers.image_transfer import (
    ImageArchiveStream as ImageArchiveStream,
    TransferProgress as TransferProgress,
    transfer_images as transfer_images,
)
from holdfast.containers.images import (
    ImageView as ImageView,
    find_image as find_image,
    load_image as load_image,
    pull_image as pull_image,
    remove_unused_image as remove_unused_image,
    validate_reference as validate_reference,
)
from holdfast.containers.labels import GATEWAY as GATEWAY, HELPER as HELPER, INPUTS as INPUTS
from holdfast.containers.networks import (
    ListeningSocket as ListeningSocket,
    NetworkView as NetworkView,
    create_network as create_network,
    find_network as find_network,
    free_port as free_port,
    is_local_address as is_local_address,
    is_port_taken as is_port_taken,
    parse_listeners as parse_listeners,
    port_owner as port_owner,
    remove_network as remove_network,
    reserved_ports as reserved_ports,
)
from holdfast.containers.volumes import (
    VolumeJob as VolumeJob,
    VolumeView as VolumeView,
    create_volume as create_volume,
    find_volume as find_volume,
    remove_volume as remove_volume,
)
