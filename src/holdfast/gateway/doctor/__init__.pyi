from holdfast.gateway.doctor.findings import (
    Diagnosis as Diagnosis,
    DoctorReport as DoctorReport,
    Finding as Finding,
)
from holdfast.gateway.doctor.runner import diagnose as diagnose
