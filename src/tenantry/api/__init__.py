"""Tenantry's kinds as typed models: conditions, reasons, marks and the errors that everything raises. Pure."""
