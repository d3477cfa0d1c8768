"""Profiles: what the field knows about each model (docs/profiles.md).

The YAML files of the repository's ``profiles`` folder are the source; the build compiles them into
``launcher/profiles.json``, which is all that a start reads.
"""
