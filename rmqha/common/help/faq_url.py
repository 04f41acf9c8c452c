"""Where to read more about an error; kept in the error texts because people search for them.

Java: org.apache.rocketmq.common.help.FAQUrl (4.9.8)
"""

APPLY_TOPIC_URL = "http://rocketmq.apache.org/docs/faq/"
SUBSCRIPTION_GROUP_NOT_EXIST = APPLY_TOPIC_URL
SAME_GROUP_DIFFERENT_TOPIC = APPLY_TOPIC_URL
MQLIST_NOT_EXIST = APPLY_TOPIC_URL
UNEXPECTED_EXCEPTION_URL = APPLY_TOPIC_URL

TIP_STRING_BEGIN = "\nSee "
TIP_STRING_END = " for further details."


def suggest_todo(url: str) -> str:
    """The sentence that points to `url`, on its own line."""
    return f"{TIP_STRING_BEGIN}{url}{TIP_STRING_END}"


def attach_default_url(error_message: str | None) -> str | None:
    """The message with a pointer to the default page, unless it has one."""
    if error_message is None or TIP_STRING_BEGIN in error_message:
        return error_message
    return f"{error_message}\nFor more information, please visit the url, {UNEXPECTED_EXCEPTION_URL}"
