from holdfast.testing import apiserver as apiserver, faults as faults
