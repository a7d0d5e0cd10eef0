"""A record of an upgrade as it lies on a gateway's volume."""

from holdfast.gateway.upgrade import UpgradeRecord

UPGRADE_RECORD = UpgradeRecord(
    id="20260101T000000Z-abcdef",
    taken_at="2026-01-01T00:00:00Z",
    image="node:1",
    image_id="sha256:1",
    kubernetes="v1.34.4",
    node_started_at="2025-12-31",
    target="node:2",
    target_kubernetes="v1.35.0",
)
