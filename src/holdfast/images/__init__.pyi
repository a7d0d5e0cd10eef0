from holdfast.images.build import build_images as build_images, image_states as image_states
from holdfast.images.image_toml import ALL_IMAGE_NAMES as ALL_IMAGE_NAMES
from holdfast.images.recipe import node_binary_path as node_binary_path
from holdfast.images.save_load import (
    LoadedImage as LoadedImage,
    SavedArchive as SavedArchive,
    load_images as load_images,
    save_images as save_images,
)
from holdfast.images.tar_reader import (
    TarEntry as TarEntry,
    TarEntryKind as TarEntryKind,
    TarReader as TarReader,
)
