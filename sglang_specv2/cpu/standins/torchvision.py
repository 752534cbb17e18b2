"""What of torchvision is used while SGLang and transformers are imported."""

__all__ = ["__version__"]

#: transformers compares it with the releases it knows before it registers image processors.
__version__ = "0.0.0"
