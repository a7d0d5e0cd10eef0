from holdfast.gateway.image_push import containerd as containerd
from holdfast.gateway.image_push.containerd import registry_host as registry_host
from holdfast.gateway.image_push.push import (
    CheckLocalImages as CheckLocalImages,
    PushGatewayImage as PushGatewayImage,
    PushImages as PushImages,
    check_gateway_running as check_gateway_running,
    gateway_image_missing_error as gateway_image_missing_error,
    local_engine as local_engine,
)
