"""The probe beside other senders and estimators, in network namespaces and an emulated machine."""
