"""Lines of access control, and its refusals of requests."""
from rmqha.tools.explain.entry import Table

T = Table("acl", "acl.md")

T.line("no-account", "No accessKey is configured", "No acl config for {key}",
       "No PlainAccessResource for accessKey={key}",
       means="The broker has aclEnable=true, and the client's request has no account or an unknown one.",
       do="Give the client an account (accessKey and secretKey) of conf/plain_acl.yml; for rmqha: `rmqha context add "
          "NAME -n ... --access-key KEY`; for mqadmin: conf/tools.yml.", page="acl.md#clients-and-tools")
T.line("bad-signature", "Check signature failed for accessKey={key}",
       means="The secretKey of the client is not the one in the broker's file, or something changed the request on "
             "its way.",
       do="Correct the secretKey in the client. A change of the broker's file takes effect within 5 seconds.",
       page="acl.md#clients-and-tools")
T.line("no-permission", "No default permission for {resource}", "Need admin permission for request code={code}",
       "no permission: {error}",
       means="The account may not do this to that topic or group, or the request needs an admin account.",
       do="Add the permission to the account (topicPerms, groupPerms, or admin: true).",
       page="acl.md#which-request-needs-what")
T.line("file-broken", "{service}: {file} could not be loaded; its previous contents stay in force",
       "Convert yaml file to data object error, {error}", "not valid YAML: {error}", "No data in file {file}",
       "No data in {file}, skip it", "No data found in {file} when deleting access config of {key}",
       "access control cannot read its files: {why}", "the account file is missing and cannot be created: {error}",
       means="A file of accounts is empty or not valid. The accounts that were loaded before stay in force.",
       do="Correct the file: the error names line and column.", page="acl.md#the-files")
T.line("file-content", "Parse resource permission failed for {resource}", "CAL_SIGNATURE_FAILED",
       "Parse resource permission error for {resource}", "value length should longer than 6",
       "Parse Resource format error for {resource}", "Netaddress examine {what} netaddress is",
       "Netaddress examine scope Exception", "RangeRemoteAddressStrategy netaddress examine scope Exception",
       "MultipleRemoteAddressStrategy {what}", "Parameter value plainAccessConfig is null",
       "The accesssKey {key} is repeated in multiple ACL files", "cannot be null and length should longer than",
       means="An account, a permission or an address pattern in a file of accounts is not valid, an account is in two "
             "files, or a client's key cannot sign a request.",
       do="Correct the entry that the line names; the page lists the forms.", page="acl.md#the-files")
T.line("file-types", "expected a text, not a {kind}", "expected a list, not {kind}",
       "expected keys with values (accounts", "accounts, number {number}: expected accessKey, secretKey",
       "accounts, number {number}, {name}: {error}", "dataVersion: expected a list of counter and timestamp",
       "dataVersion: counter and timestamp must be whole numbers", "an empty element",
       "expected true or false, not {text}", "{file}: globalWhiteRemoteAddresses: {error}",
       "{file}: account {key}: {error}",
       means="A value in a file of accounts has another type than Java's broker expects: a list instead of a text, an "
             "empty element, a word instead of true or false.",
       do="Correct the place that the line names, then wait 5 seconds: the file is loaded again.",
       page="acl.md#the-files")
T.line("request-refused", "Parameter value accesskey is null or empty String",
       "Parameter value globalWhiteAddrsList is null", "Parameter value {file} is not exist or is a directory",
       "Parameter value {file} is not in the directory rocketmq.home.dir {folder}",
       "Parameter value {file} is not a ACL configuration file",
       means="A request to change accounts lacks a value, or names a file that is not one of the broker's account "
             "files.",
       do="Correct the command; files are below ROCKETMQ_HOME/conf.", page="acl.md#the-files")
T.line("tool-without-account", "Cannot find conf file :{file}, acl isn't be enabled",
       "AccessKey or secretKey is blank, the acl is not enabled",
       means="The tools' account file conf/tools.yml is missing or incomplete, so requests are not signed.",
       do="Fill in accessKey and secretKey, if the brokers use access control.", page="acl.md#clients-and-tools")
