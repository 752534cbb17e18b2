"""The bundled pair under rising and falling load: ``python -m sglang_specv2.demo``."""
