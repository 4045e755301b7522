--- plan: which ranks run on which hosts, with which variables and commands.
--
-- A node is what one host has to do, plain data that can be sent there: {host, is_local, node_rank, argv, folder, ranks =
-- {{rank, variables}}, forward, threads, bind, grace, inherits, key}.
local core = require "argand.core"
local environment = require "argand.dist.environment"
local hostlist = require "argand.dist.hostlist"

local M = {}

local LOCAL_HOSTS = {localhost = true, ["127.0.0.1"] = true, ["::1"] = true}

--- Whether ranks for `host` are started without ssh.
---@param host string
---@param own string this host's name
---@return boolean
function M.is_local(host, own)
  return LOCAL_HOSTS[host] or host == own or host == own:match "^[^.]+" or false
end

local function read_file(path)
  local file, err = io.open(path, "rb")
  local text = file and file:read "*a"
  if file then file:close() end
  if not text then core.raise("file", "run", err or ("cannot read " .. path)) end
  return text
end

--- The hosts that the options name, {host, slots}; this one with as many slots as there are ranks when they name none.
---@param opts table
---@param self_info table of process.self()
---@return {host: string, slots: integer}[]
function M.hosts(opts, self_info)
  local list, err
  if opts.hosts then list, err = hostlist.parse(opts.hosts)
  elseif opts.hostfile then list, err = hostlist.parse_file(read_file(opts.hostfile), opts.hostfile)
  else return {{host = "localhost", slots = opts.n or self_info.processors}} end
  if not list then error(err, 0) end
  return list
end

--- The number of slots of hosts.
---@param hosts {host: string, slots: integer}[]
---@return integer
function M.num_slots(hosts)
  local sum = 0
  for _, entry in ipairs(hosts) do sum = sum + entry.slots end
  return sum
end

--- The number of ranks; refuses more than there are slots.
---@param opts table
---@param hosts {host: string, slots: integer}[]
---@return integer
function M.size(opts, hosts)
  local slots = M.num_slots(hosts)
  local size = opts.n or slots
  if size > slots then
    core.raise("value", "run", ("-n %d is more than the %d slot%s of %d host%s"):format(size, slots, slots == 1 and "" or "s",
      #hosts, #hosts == 1 and "" or "s"), "write host:N, or slots=N in the host file")
  end
  return size
end

-- Where rank 0 listens: on an abstract address when all are on this host.
local function coordinator(job, nodes)
  if #nodes == 1 then return "ipc://@argand-" .. job.name end
  return ("tcp://%s:%d"):format(M.address(nodes, job):gsub("^.*:.*:.*$", "[%0]"), job.port)
end

--- The name or address under which all hosts reach rank 0's.
function M.address(nodes, job)
  local host = nodes[1].host
  if #nodes == 1 then return "127.0.0.1" end
  return LOCAL_HOSTS[host] and job.own_host or (host:gsub("^.*@", ""))
end

-- The variables of one rank; a key's path is known to its host only and added there.
local function variables(job, nodes, node, rank, local_rank, local_size, size)
  local opts = job.opts
  local result = {
    ARGAND_RANK = rank, ARGAND_WORLD_SIZE = size, ARGAND_LOCAL_RANK = local_rank, ARGAND_LOCAL_WORLD_SIZE = local_size,
    ARGAND_NODE_RANK = node.node_rank, ARGAND_NODES = #nodes, ARGAND_JOB = job.name, ARGAND_EPOCH = job.restart,
    ARGAND_RESTART = job.restart, ARGAND_COORDINATOR = coordinator(job, nodes),
    ARGAND_TIMEOUT = opts.timeout and ("%.14g"):format(opts.timeout), ARGAND_TRANSPORT = opts.transport,
    RANK = rank, WORLD_SIZE = size, LOCAL_RANK = local_rank, LOCAL_WORLD_SIZE = local_size,
    MASTER_ADDR = M.address(nodes, job), MASTER_PORT = job.port,
  }
  for name, value in pairs(result) do result[name] = tostring(value) end
  return result
end

-- What --env and this process's own ARGAND_ variables give to other hosts.
local function forwarded(job)
  local result = {}
  for _, entry in ipairs(job.environment) do
    local name, value = entry:match "^(ARGAND_[^=]+)=(.*)$"
    if name then result[name] = value end
  end
  for _, name in ipairs {"ARGAND_STATUS_FD", "ARGAND_KEY_FILE"} do result[name] = nil end
  for _, entry in ipairs(job.opts.env or {}) do
    local name, value = entry:match "^([^=]+)=(.*)$"
    if not name then name, value = entry, os.getenv(entry) end
    result[name] = value
  end
  return result
end

-- With --bind a node knows how many ranks divide its host's processors, and how many of them come before its own. Names of this
-- host are nodes of their own and divide the same processors.
local function set_shares(nodes)
  local num_local = 0
  for _, node in ipairs(nodes) do
    node.bind = {before = node.is_local and num_local or 0, size = node.num_ranks}
    if node.is_local then num_local = num_local + node.num_ranks end
  end
  for _, node in ipairs(nodes) do
    if node.is_local then node.bind.size = num_local end
  end
end

--- Lays `size` ranks on the hosts, host after host. job: {name, port, own_host, restart, opts, argv, folder, key,
--- environment}.
---@return table[] nodes
function M.nodes(job, hosts, size)
  local nodes, left = {}, size
  for _, entry in ipairs(hosts) do
    local count = math.min(left, entry.slots)
    if count > 0 then
      nodes[#nodes + 1] = {host = entry.host, num_ranks = count, node_rank = #nodes, argv = job.argv, folder = job.folder,
                           is_local = M.is_local(entry.host, job.own_host), threads = job.opts.threads, key = job.key,
                           grace = job.opts.grace, forward = forwarded(job)}
      left = left - count
    end
  end
  local rank = 0
  for _, node in ipairs(nodes) do
    node.ranks = {}
    for local_rank = 0, node.num_ranks - 1 do
      node.ranks[local_rank + 1] = {rank = rank,
                                    variables = variables(job, nodes, node, rank, local_rank, node.num_ranks, size)}
      rank = rank + 1
    end
    node.inherits = size == 1 and node.is_local and not job.opts.log_dir
  end
  if job.opts.bind then set_shares(nodes) end
  return nodes
end

--- What names the core of each processor, the same for all of its threads; none where the system does not tell.
---@param processors integer[]
---@return table<integer, string> core_of
function M.core_of(processors)
  local core_of = {}
  for _, processor in ipairs(processors) do
    local file = io.open(("/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list"):format(processor))
    core_of[processor] = file and file:read "*l"
    if file then file:close() end
  end
  return core_of
end

-- The processors as lists, one for each core in the order of their first ones, or all alone in that order if there are fewer
-- cores than `size`.
local function units_of(processors, core_of, size)
  local cores, by_name, alone = {}, {}, {}
  for _, processor in ipairs(processors) do
    local name = core_of[processor] or processor
    if not by_name[name] then
      by_name[name] = {}
      cores[#cores + 1] = by_name[name]
    end
    table.insert(by_name[name], processor)
  end
  if #cores >= size then return cores end
  for _, threads in ipairs(cores) do
    for _, processor in ipairs(threads) do alone[#alone + 1] = {processor} end
  end
  return alone
end

--- The processors of each rank of a node, one after the other: whole cores, when there are as many as ranks. The first ranks of
--- the host have one core, or processor, more than the others when they do not come out even. nil without --bind, or when there
--- are fewer processors than ranks.
---@param node table
---@param processors integer[] those of the host
---@param core_of table<integer, string>|nil see M.core_of; nil: each is a core
---@return integer[][]|nil
function M.shares(node, processors, core_of)
  if not node.bind or #processors < node.bind.size then return nil end
  local units = units_of(processors, core_of or {}, node.bind.size)
  local least, num_larger = math.floor(#units / node.bind.size), #units % node.bind.size
  local shares = {}
  for i = 1, #node.ranks do
    local position, share = node.bind.before + i - 1, {}
    local first = position * least + math.min(position, num_larger)
    for k = 1, least + (position < num_larger and 1 or 0) do
      for _, processor in ipairs(units[first + k]) do share[#share + 1] = processor end
    end
    table.sort(share)
    shares[i] = share
  end
  return shares
end

--- How many threads a rank of a node uses, as variables: one for each processor of its share, else processors divided by ranks,
--- unless `given` or --threads say otherwise. No more than its part of what a control group grants.
---@param node table
---@param share integer[]|nil processors that it is bound to
---@param given table<string, string> variables that are set already
---@return table<string, string>
function M.thread_variables(node, share, given)
  local granted = core.process.self().processors
  local count = math.floor(granted / #node.ranks)
  if share then count = granted < #core.process.processors() and math.min(#share, count) or #share end
  local threads = tostring(node.threads or math.max(1, count))
  return {
    ARGAND_THREADS = not node.threads and given.ARGAND_THREADS or threads,
    OPENBLAS_NUM_THREADS = given.OPENBLAS_NUM_THREADS or threads, OMP_NUM_THREADS = given.OMP_NUM_THREADS or threads,
  }
end

--- A word as a POSIX shell reads it.
---@param text string
---@return string
function M.quote(text)
  if text:find "^[%w_%-%./:=@,+]+$" then return text end
  return "'" .. text:gsub("'", "'\\''") .. "'"
end

--- Several words for a shell.
---@param words string[]
---@return string
function M.quote_all(words)
  local quoted = {}
  for i, word in ipairs(words) do quoted[i] = M.quote(word) end
  return table.concat(quoted, " ")
end

local SSH = {"ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "-o", "ServerAliveInterval=5", "-o",
             "ServerAliveCountMax=3"}

--- The command that starts the other side on a node's host.
---@return string[]
function M.remote_argv(job, node)
  local argv = {}
  if job.opts.ssh then
    for word in job.opts.ssh:gmatch "%S+" do argv[#argv + 1] = word end
  else
    for i, word in ipairs(SSH) do argv[i] = word end
  end
  argv[#argv + 1] = node.host
  argv[#argv + 1] = ("cd %s && exec %s run --agent"):format(M.quote(node.folder), M.quote(job.program))
  return argv
end

-- What --dry-run shows of the environment of a rank. Of another host's threads it is known what --threads says, else nothing.
local function shown_variables(job, node, rank, share)
  local shown = {}
  local function add(new)
    for name, value in pairs(new) do shown[name] = value end
  end
  add(node.forward)
  if node.is_local or node.threads then
    local given = {}
    for _, name in ipairs {"ARGAND_THREADS", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"} do given[name] = os.getenv(name) end
    add(M.thread_variables(node, share, given))
  end
  add(rank.variables)
  if job.has_key then shown.ARGAND_KEY_FILE = job.opts.key or "(made at the start)" end
  local words = {}
  for name, value in pairs(shown) do words[#words + 1] = name .. "=" .. value end
  table.sort(words)
  return words
end

--- What --dry-run prints: for each rank a comment and a command that a shell could run on its host.
---@return string
function M.describe(job, nodes)
  local lines = {}
  for _, node in ipairs(nodes) do
    if not node.is_local then
      lines[#lines + 1] = ("# host %s: %s"):format(node.host, M.quote_all(M.remote_argv(job, node)))
    end
    local processors = core.process.processors()
    local shares = node.is_local and M.shares(node, processors, M.core_of(processors)) or {}
    for i, rank in ipairs(node.ranks) do
      local share = shares[i]
      local command = ("env %s %s"):format(M.quote_all(shown_variables(job, node, rank, share)), M.quote_all(node.argv))
      lines[#lines + 1] = ("# rank %d on %s%s"):format(rank.rank, node.host,
        share and ", processors " .. table.concat(share, ",") or "")
      lines[#lines + 1] = command
    end
  end
  return table.concat(lines, "\n")
end

--- A port for rank 0 that follows from the job's name.
M.port_of = environment.port_of

return M
