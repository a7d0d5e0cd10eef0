"""A recipe uses the cache that it is given."""

from holdfast.images.build_cache import BuildCache
from holdfast.images.recipe import Recipe


def test_recipe_reads_the_refresh_mark_of_its_cache(tmp_path):
    cache = BuildCache(tmp_path)
    before = Recipe("sandbox", cache=cache).rootfs_key
    with cache.refresh():
        assert Recipe("sandbox", cache=cache).rootfs_key != before
