from holdfast.gateway.image_push import containerd_images as containerd_images
from holdfast.gateway.image_push.push import (
    CheckLocalImages as CheckLocalImages,
    PushGatewayImage as PushGatewayImage,
    PushImages as PushImages,
    check_gateway_running as check_gateway_running,
    find_gateway_image as find_gateway_image,
    gateway_image_missing_error as gateway_image_missing_error,
)
