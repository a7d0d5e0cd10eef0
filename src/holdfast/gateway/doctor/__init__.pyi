from holdfast.gateway.doctor.findings import (
    Diagnosis as Diagnosis,
    DoctorReport as DoctorReport,
    Finding as Finding,
    FixedBy as FixedBy,
    Repair as Repair,
    Severity as Severity,
)
from holdfast.gateway.doctor.runner import diagnose as diagnose
