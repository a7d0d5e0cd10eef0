from holdfast.pki.authority import (
    BUNDLE_LIFETIME as BUNDLE_LIFETIME,
    CertificateAuthority as CertificateAuthority,
    issue_bundle as issue_bundle,
)
from holdfast.pki.bundle import (
    CLIENT_CA_SECRET as CLIENT_CA_SECRET,
    CLIENT_SECRET as CLIENT_SECRET,
    SECRET_TYPES as SECRET_TYPES,
    SERVER_SECRET as SERVER_SECRET,
    CertificateBundle as CertificateBundle,
    CertificateProblem as CertificateProblem,
    ClientIdentity as ClientIdentity,
    KeyPair as KeyPair,
    StoredCredentials as StoredCredentials,
    ValidationResult as ValidationResult,
    from_secret_data as from_secret_data,
    to_secret_data as to_secret_data,
)
from holdfast.pki.client_store import ClientCertificateStore as ClientCertificateStore
from holdfast.pki.server_names import normalize_server_name as normalize_server_name
from holdfast.pki.validation import (
    validate_bundle as validate_bundle,
    validate_client_identity as validate_client_identity,
    validate_period as validate_period,
)
