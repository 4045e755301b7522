--- environment: which launcher started this process, and what it says: rank, size, where rank 0 listens.
--
-- Launchers are asked in the order of `sources`; the first that left its mark wins and has to be complete. ARGAND_COORDINATOR,
-- ARGAND_JOB, ARGAND_EPOCH, ARGAND_KEY_FILE and ARGAND_TIMEOUT count whoever the launcher is.
local core = require "argand.core"
local hostlist = require "argand.dist.hostlist"
local bit = require "bit"

local M = {}

local MAX_RANKS = 65536
local MAX_JOB_BYTES = 63
local FIRST_PORT, NUM_PORTS = 20000, 10000
local SPECIAL_STEPS = 0xfffffff0 -- numbers from here on are no steps: the batch script's, an interactive shell's

local function refuse(code, message, hint) core.raise(code, "dist.init", message, hint) end

-- A number that does not depend on the process: FNV-1a, 32 bits.
local function hash(text)
  local h = 0x811c9dc5
  for i = 1, #text do
    h = bit.bxor(h, text:byte(i))
    h = bit.tobit(h + bit.lshift(h, 1) + bit.lshift(h, 4) + bit.lshift(h, 7) + bit.lshift(h, 8) + bit.lshift(h, 24))
  end
  return h % 2 ^ 32
end

--- A port for rank 0 that depends on the job's name only: 20000 to 29999.
---@param job string
---@return integer
function M.port_of(job) return FIRST_PORT + hash(job) % NUM_PORTS end

-- A name for the job of at most 63 plain bytes.
local function job_name(text)
  local name = text:gsub("[^%w%._%-]", "-")
  if name == text and #name <= MAX_JOB_BYTES then return name end
  return ("%s-%08x"):format(name:sub(1, MAX_JOB_BYTES - 9), hash(text))
end

---- variables

local function whole(get, name, low, high, source)
  local text = get(name)
  if not text then return nil end
  local number = text:find "^%d+$" and tonumber(text)
  if number and number >= low and number <= high then return number end
  refuse("value", ("%s of %s is '%s': expected a whole number from %d to %.0f"):format(name, source, text, low, high))
end

-- What a launcher does not set itself.
local OWN_WORDS = {["ARGAND_WORLD_SIZE of kubernetes"] = "set it in the pod template to the job's completions"}

local function require_whole(get, name, low, high, source, because)
  local number = whole(get, name, low, high, source)
  if number then return number end
  refuse("state", ("%s is not set although %s is"):format(name, because),
    OWN_WORDS[name .. " of " .. source] or source .. " sets both; unset both for one process")
end

-- Both of a pair of variables, one of which is set.
local function rank_and_size(get, source, rank_name, size_name)
  local size = require_whole(get, size_name, 1, MAX_RANKS, source, rank_name)
  local rank = require_whole(get, rank_name, 0, MAX_RANKS, source, size_name)
  if rank >= size then
    refuse("value", ("%s is %d, %s is %d: ranks count from 0"):format(rank_name, rank, size_name, size))
  end
  return rank, size
end

-- The rank among those of this host and their number; both or none.
local function add_local(get, result, rank_name, size_name)
  local source = result.source
  result.local_rank = whole(get, rank_name, 0, MAX_RANKS, source)
  result.local_size = whole(get, size_name, 1, MAX_RANKS, source)
  if result.local_rank and result.local_size and result.local_rank >= result.local_size then
    refuse("value", ("%s is %d, %s is %d: ranks count from 0"):format(rank_name, result.local_rank, size_name,
      result.local_size))
  end
  if result.local_size and result.local_size > result.size then
    refuse("value", ("%s is %d, more than the %d ranks of the job"):format(size_name, result.local_size, result.size))
  end
end

local function endpoint(host, port)
  if host:find(":", 1, true) and host:sub(1, 1) ~= "[" then host = "[" .. host .. "]" end
  return ("tcp://%s:%d"):format(host, port)
end

---- launchers: is_present(get), read(get) -> result

local sources = {}

local function is_any_set(...)
  local names = {...}
  return function(get)
    for _, name in ipairs(names) do
      if get(name) then return true end
    end
    return false
  end
end

sources[#sources + 1] = {
  name = "argand",
  is_present = function(get)
    if get "ARGAND_RANK" then return true end
    return get "ARGAND_WORLD_SIZE" ~= nil and not (get "JOB_COMPLETION_INDEX" or get "LWS_WORKER_INDEX")
  end,
  read = function(get)
    local result = {source = "argand"}
    result.rank, result.size = rank_and_size(get, "argand", "ARGAND_RANK", "ARGAND_WORLD_SIZE")
    add_local(get, result, "ARGAND_LOCAL_RANK", "ARGAND_LOCAL_WORLD_SIZE")
    return result
  end,
}

local LOOPBACK = {localhost = true, ["127.0.0.1"] = true, ["::1"] = true}

sources[#sources + 1] = {
  name = "torchrun",
  is_present = is_any_set("RANK", "WORLD_SIZE"),
  read = function(get)
    local result = {source = "torchrun"}
    result.rank, result.size = rank_and_size(get, "torchrun", "RANK", "WORLD_SIZE")
    add_local(get, result, "LOCAL_RANK", "LOCAL_WORLD_SIZE")
    local host, port = get "MASTER_ADDR", whole(get, "MASTER_PORT", 1, 65534, "torchrun")
    if host and not port then refuse("state", "MASTER_PORT is not set although MASTER_ADDR is", "torchrun sets both") end
    if port and not host then refuse("state", "MASTER_ADDR is not set although MASTER_PORT is", "torchrun sets both") end
    -- torchrun's own agent listens at the port then
    if port and get "TORCHELASTIC_USE_AGENT_STORE" == "True" then port = port + 1 end
    if host then
      local is_local = result.local_size == result.size and not LOOPBACK[host]
      result.coordinator = endpoint(is_local and "127.0.0.1" or host, port)
    end
    local run_id = get "TORCHELASTIC_RUN_ID"
    if run_id and run_id ~= "none" then result.job = job_name(run_id) end
    result.epoch = whole(get, "TORCHELASTIC_RESTART_COUNT", 0, 2 ^ 32 - 1, "torchrun")
    return result
  end,
}

sources[#sources + 1] = {
  name = "openmpi",
  is_present = is_any_set("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
  read = function(get, parent)
    local result = {source = "openmpi"}
    result.rank, result.size = rank_and_size(get, "openmpi", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE")
    add_local(get, result, "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE")
    local name = get "PMIX_NAMESPACE" or get "OMPI_MCA_ess_base_jobid" or parent()
    result.job = name and job_name("ompi-" .. name)
    return result
  end,
}

sources[#sources + 1] = {
  name = "pmi",
  is_present = is_any_set("PMI_RANK", "PMI_SIZE"),
  read = function(get, parent)
    local result = {source = "pmi"}
    result.rank, result.size = rank_and_size(get, "pmi", "PMI_RANK", "PMI_SIZE")
    add_local(get, result, "MPI_LOCALRANKID", "MPI_LOCALNRANKS")
    local name = get "PMI_JOBID" or get "PMI_PORT" or parent()
    result.job = name and job_name("pmi-" .. name)
    return result
  end,
}

-- The entry of "2(x3),1" for a node, counted from 0; nil when the text has no such entry.
local function tasks_on_node(text, node)
  for item in text:gmatch "[^,]+" do
    local count, times = item:match "^(%d+)%(x(%d+)%)$"
    if not count then count, times = item:match "^%d+$", 1 end
    if not count then return nil end
    node = node - tonumber(times)
    if node < 0 then return tonumber(count) end
  end
end

local function slurm_size_name(get)
  for _, name in ipairs {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"} do
    if get(name) then return name end
  end
  return "SLURM_NTASKS"
end

local function slurm_coordinator(get, job)
  local name = get "SLURM_STEP_NODELIST" and "SLURM_STEP_NODELIST" or get "SLURM_JOB_NODELIST" and "SLURM_JOB_NODELIST"
    or "SLURM_NODELIST"
  local text = get(name)
  if not text then return nil end
  local hosts, err = hostlist.expand(text)
  if not hosts then refuse("value", ("%s: %s"):format(name, err.message)) end
  return endpoint(hosts[1], M.port_of(job))
end

sources[#sources + 1] = {
  name = "slurm",
  -- A shell of salloc has variables of Slurm and is no job, nor is a batch script: ranks are started by srun, in a step.
  is_present = function(get)
    local step = tonumber(get "SLURM_STEP_ID" or "")
    if not get "SLURM_PROCID" or not step or step >= SPECIAL_STEPS then return false end
    return tonumber(get(slurm_size_name(get)) or "") ~= 1
  end,
  read = function(get)
    local result = {source = "slurm"}
    local size_name = slurm_size_name(get)
    result.rank, result.size = rank_and_size(get, "slurm", "SLURM_PROCID", size_name)
    result.local_rank = whole(get, "SLURM_LOCALID", 0, MAX_RANKS, "slurm")
    local tasks = get "SLURM_STEP_TASKS_PER_NODE" or get "SLURM_TASKS_PER_NODE"
    local node = whole(get, "SLURM_NODEID", 0, MAX_RANKS, "slurm")
    result.local_size = tasks and tasks_on_node(tasks, node or 0)
    if not get "SLURM_JOB_ID" then refuse("state", "SLURM_JOB_ID is not set although SLURM_PROCID is", "srun sets both") end
    result.job = job_name(("slurm-%s-%s"):format(get "SLURM_JOB_ID", get "SLURM_STEP_ID"))
    if result.local_size ~= result.size then result.coordinator = slurm_coordinator(get, result.job) end
    result.epoch = whole(get, "SLURM_RESTART_COUNT", 0, 2 ^ 32 - 1, "slurm")
    return result
  end,
}

local LWS_PORT = 29400

-- An indexed job is only one of ours when it says how many ranks there are or where they meet.
sources[#sources + 1] = {
  name = "kubernetes",
  is_present = function(get)
    local is_indexed = get "JOB_COMPLETION_INDEX" and (get "ARGAND_WORLD_SIZE" or get "ARGAND_COORDINATOR")
    return (is_indexed or get "LWS_WORKER_INDEX") ~= nil
  end,
  read = function(get)
    local result = {source = "kubernetes"}
    if get "JOB_COMPLETION_INDEX" and (get "ARGAND_WORLD_SIZE" or get "ARGAND_COORDINATOR") then
      result.rank, result.size = rank_and_size(get, "kubernetes", "JOB_COMPLETION_INDEX", "ARGAND_WORLD_SIZE")
    else
      result.rank, result.size = rank_and_size(get, "kubernetes", "LWS_WORKER_INDEX", "LWS_GROUP_SIZE")
      local leader = get "LWS_LEADER_ADDRESS"
      if leader then result.coordinator = endpoint(leader, LWS_PORT) end
    end
    add_local(get, result, "ARGAND_LOCAL_RANK", "ARGAND_LOCAL_WORLD_SIZE")
    return result
  end,
}

---- all together

-- What launches the ranks of a host is the parent of all of them: its process and when that began.
local function parent_id()
  local function fields(pid)
    local file = io.open(("/proc/%s/stat"):format(pid))
    if not file then return nil end
    local text = file:read "*a"
    file:close()
    local list = {}
    for word in text:gsub("^.*%) ", ""):gmatch "%S+" do list[#list + 1] = word end
    return list -- from the third field on
  end
  local own = fields "self"
  local parent = own and fields(own[2])
  return parent and ("%s-%s"):format(own[2], parent[20])
end

local function add_overrides(get, result)
  local source = result.source
  result.coordinator = get "ARGAND_COORDINATOR" or result.coordinator
  if get "ARGAND_JOB" then result.job = job_name(get "ARGAND_JOB") end
  result.epoch = whole(get, "ARGAND_EPOCH", 0, 2 ^ 32 - 1, source) or result.epoch or 0
  result.key_file = get "ARGAND_KEY_FILE"
  result.transport = get "ARGAND_TRANSPORT"
  local timeout = get "ARGAND_TIMEOUT"
  if timeout then
    result.timeout = tonumber(timeout)
    if not result.timeout or not (result.timeout > 0 and result.timeout < math.huge) then
      refuse("value", ("ARGAND_TIMEOUT is '%s': expected seconds above 0"):format(timeout))
    end
  end
end

local ADDRESS_VARIABLES = {torchrun = "MASTER_ADDR and MASTER_PORT", slurm = "SLURM_JOB_NODELIST",
                           kubernetes = "ARGAND_COORDINATOR or LWS_LEADER_ADDRESS"}

local function complete_address(result)
  if not result.coordinator and result.size > 1 then
    if result.local_size ~= result.size or not result.job then
      local name = ADDRESS_VARIABLES[result.source] or "ARGAND_COORDINATOR"
      local why = result.local_size == result.size and "no name of the job is known"
        or result.local_size and "the ranks are on several hosts" or "nothing says that all ranks are on one host"
      local message = "where rank 0 listens is not known: %s is not set (launcher %s), and %s"
      refuse("state", message:format(name, result.source, why),
        "set ARGAND_COORDINATOR=tcp://HOST:PORT on all ranks, or MASTER_ADDR and MASTER_PORT with RANK and WORLD_SIZE")
    end
    result.coordinator = "ipc://@argand-" .. result.job
  end
  if not result.job and result.coordinator then
    result.job = job_name((result.coordinator:gsub("^%w+://@?", "")))
  end
end

local function find(get, parent)
  local result, others = nil, {}
  for _, source in ipairs(sources) do
    if source.is_present(get) then
      if not result then
        result = source.read(get, parent)
      else
        local ok, other = pcall(source.read, get, parent)
        if ok then others[#others + 1] = other end
      end
    end
  end
  return result, others
end

-- Takes from launchers that agree what the first one does not say, and notes who disagrees.
local function consider(result, others)
  local notes = {}
  for _, other in ipairs(others) do
    if other.rank == result.rank and other.size == result.size then
      for _, name in ipairs {"local_rank", "local_size", "coordinator"} do
        if result[name] == nil then result[name] = other[name] end
      end
    else
      notes[#notes + 1] = ("%s says rank %d of %d"):format(other.source, other.rank, other.size)
    end
  end
  if #notes > 0 then
    result.note = ("%s won with rank %d of %d; %s"):format(result.source, result.rank, result.size, table.concat(notes, ", "))
  end
end

--- Returns what the launcher of this process says; without a launcher source "none", rank 0 of 1. Variables that contradict
--- each other or miss a partner give nil and an error that names them.
---@param getenv? fun(name: string): string|nil
---@param parent? fun(): string|nil names the process that started all ranks of this host
---@return {source: string, rank: integer, size: integer, local_rank: integer|nil, local_size: integer|nil,
---  coordinator: string|nil, job: string|nil, epoch: integer, key_file: string|nil, timeout: number|nil,
---  transport: string|nil, note: string|nil}|nil
---@return table|nil err
function M.detect(getenv, parent)
  getenv = getenv or os.getenv
  local function get(name)
    local value = getenv(name)
    return value ~= "" and value or nil
  end
  local ok, result = pcall(function()
    local result, others = find(get, parent or parent_id)
    result = result or {source = "none", rank = 0, size = 1}
    if result.size == 1 then result.local_rank, result.local_size = 0, 1 end
    consider(result, others)
    add_overrides(get, result)
    complete_address(result)
    return result
  end)
  if not ok then return nil, result end
  return result
end

return M
