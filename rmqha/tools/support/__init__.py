"""`rmqha support`: one file with what a maintainer needs to understand a problem, without secrets.

    config files, environment --harvest--> Redactor (known secrets)
    sections --Item--> Bundle: redact -> shrink to the size that is left -> archive (tar.gz or zip), manifest at its end
"""
