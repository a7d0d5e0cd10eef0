from holdfast.sandbox import from_request as from_request, update as update
from holdfast.sandbox.actions import (
    Action as Action,
    ActionTarget as ActionTarget,
    Adopt as Adopt,
    Create as Create,
    Decision as Decision,
    Delete as Delete,
    Patch as Patch,
)
from holdfast.sandbox.claim.adoption import (
    adoption_conflict as adoption_conflict,
    bound_sandbox_name as bound_sandbox_name,
    recorded_sandbox_name as recorded_sandbox_name,
)
from holdfast.sandbox.claim.binding import (
    ObservedSandboxClaim as ObservedSandboxClaim,
    creation_conflict as creation_conflict,
    reconcile_sandbox_claim as reconcile_sandbox_claim,
    sandbox_claim_error_status as sandbox_claim_error_status,
)
from holdfast.sandbox.claim.metadata import (
    additional_pod_metadata as additional_pod_metadata,
    error_condition as error_condition,
)
from holdfast.sandbox.dependents import (
    UNENFORCED_STORAGE_CLASSES as UNENFORCED_STORAGE_CLASSES,
    is_bound as is_bound,
    largest_disk as largest_disk,
)
from holdfast.sandbox.host_settings import (
    CA_BUNDLE_KEY as CA_BUNDLE_KEY,
    CA_CONFIG_MAP as CA_CONFIG_MAP,
    PROXY_SECRET as PROXY_SECRET,
    HostSettings as HostSettings,
)
from holdfast.sandbox.lifecycle import (
    idle_timeout as idle_timeout,
    recreates_failed_pods as recreates_failed_pods,
    seconds_until_claim_expiry as seconds_until_claim_expiry,
    seconds_until_shutdown as seconds_until_shutdown,
)
from holdfast.sandbox.manifests import (
    controller_of as controller_of,
    merge_patch as merge_patch,
    name_hash as name_hash,
    network_policy_name as network_policy_name,
    normalized_creator as normalized_creator,
    owner_reference as owner_reference,
    pod_metadata as pod_metadata,
    pod_name as pod_name,
    pvc_name as pvc_name,
)
from holdfast.sandbox.network_policy import (
    ObservedTemplate as ObservedTemplate,
    has_name_conflict as has_name_conflict,
    is_managed_policy as is_managed_policy,
    policy_name as policy_name,
    reconcile_template as reconcile_template,
    selected_labels as selected_labels,
    template_name as template_name,
)
from holdfast.sandbox.pool_requests import (
    build_pool_change as build_pool_change,
    build_pool_request as build_pool_request,
    build_template_request as build_template_request,
    pool_manifest as pool_manifest,
    template_manifest as template_manifest,
)
from holdfast.sandbox.reconcile import (
    CLUSTER_DOMAIN as CLUSTER_DOMAIN,
    ObservedSandbox as ObservedSandbox,
    RejectedWrite as RejectedWrite,
    reconcile_sandbox as reconcile_sandbox,
)
from holdfast.sandbox.secrets import (
    SECRET_LABEL as SECRET_LABEL,
    check_secret_size as check_secret_size,
    env_problem as env_problem,
    is_managed_secret as is_managed_secret,
    parse_secret_use as parse_secret_use,
    secret_manifest as secret_manifest,
    secret_object_name as secret_object_name,
    used_secrets as used_secrets,
)
from holdfast.sandbox.status import find_condition as find_condition, has_condition as has_condition
from holdfast.sandbox.validation import (
    DEFAULT_LABEL_DOMAINS as DEFAULT_LABEL_DOMAINS,
    build_request as build_request,
    build_update as build_update,
    check_update as check_update,
    describe_validation_error as describe_validation_error,
    memory_problem as memory_problem,
    reserved_label_reason as reserved_label_reason,
    updated_fields as updated_fields,
    validate_name as validate_name,
    validate_selector as validate_selector,
)
from holdfast.sandbox.warmpool import (
    ObservedWarmPool as ObservedWarmPool,
    count_held as count_held,
    reconcile_warm_pool as reconcile_warm_pool,
    warm_pool_error_status as warm_pool_error_status,
)
from holdfast.sandbox.workspace import SEED_CONTAINER as SEED_CONTAINER, VOLUME_NAME as VOLUME_NAME
