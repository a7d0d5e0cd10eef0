from holdfast.controller.reconcilers.claim import SandboxClaimReconciler as SandboxClaimReconciler
from holdfast.controller.reconcilers.sandbox import (
    REQUEUE_UNWATCHED as REQUEUE_UNWATCHED,
    SandboxReconciler as SandboxReconciler,
)
from holdfast.controller.reconcilers.template import SandboxTemplateReconciler as SandboxTemplateReconciler
from holdfast.controller.reconcilers.warmpool import WarmPoolReconciler as WarmPoolReconciler
