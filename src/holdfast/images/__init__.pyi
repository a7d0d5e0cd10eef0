from holdfast.images.build import build_images as build_images, image_states as image_states
