from holdfast.images.build import build_images as build_images, image_states as image_states
from holdfast.images.recipe import node_binary_path as node_binary_path
