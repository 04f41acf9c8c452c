// The pages by path. Each `open(context)` puts its frame into context.root, and returns a function that draws it with new data.
import { openAccounts } from "./accounts.js";
import { openBroker, openCluster, openConfig, openStore } from "./cluster.js";
import { openDeadLetters } from "./deadletters.js";
import { openDeadLetterGroups, openGroup, openGroups, openGroupSettings, openSeek } from "./groups.js";
import { openBrowse, openMessages, openPublish } from "./messages.js";
import { openTopic, openTopics, openTopicSettings } from "./topics.js";

const TOPICS = ["/topics", "Topics"], GROUPS = ["/groups", "Groups"], DEAD = ["/dead-letters", "Dead letters"];

// `live: false`: drawn once, not at each interval. `crumbs`: the pages above it.
export const PAGES = [
  { path: /^\/$/, title: "Cluster", open: openCluster },
  { path: /^\/topics$/, title: "Topics", open: openTopics },
  { path: /^\/topics\/([^/]+)$/, title: "Topic", open: openTopic, crumbs: [TOPICS] },
  { path: /^\/topics\/([^/]+)\/messages$/, title: "Messages", open: openBrowse, crumbs: [TOPICS], live: false },
  { path: /^\/topics\/([^/]+)\/publish$/, title: "Publish", open: openPublish, crumbs: [TOPICS], live: false },
  { path: /^\/topics\/([^/]+)\/settings$/, title: "Settings", open: openTopicSettings, crumbs: [TOPICS], live: false },
  { path: /^\/groups$/, title: "Groups", open: openGroups },
  { path: /^\/groups\/([^/]+)$/, title: "Group", open: openGroup, crumbs: [GROUPS] },
  { path: /^\/groups\/([^/]+)\/seek$/, title: "Move the offsets", open: openSeek, crumbs: [GROUPS], live: false },
  { path: /^\/groups\/([^/]+)\/settings$/, title: "Settings", open: openGroupSettings, crumbs: [GROUPS], live: false },
  { path: /^\/messages$/, title: "Messages", open: openMessages, live: false },
  { path: /^\/dead-letters$/, title: "Dead letters", open: openDeadLetterGroups, live: false },
  { path: /^\/dead-letters\/([^/]+)$/, title: "Dead letters", open: openDeadLetters, crumbs: [DEAD], live: false },
  { path: /^\/store$/, title: "Store", open: openStore },
  { path: /^\/brokers\/([^/]+)$/, title: "Broker", open: openBroker, crumbs: [["/", "Cluster"]], live: false },
  { path: /^\/config$/, title: "Settings that differ", open: openConfig, live: false },
  { path: /^\/accounts$/, title: "Accounts", open: openAccounts, live: false },
];
