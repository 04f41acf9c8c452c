"""Access control by the accounts and addresses of conf/plain_acl.yml and conf/acl/."""
