--- run: `argand run`: starts a script as several processes on this and other hosts, watches them, and ends them together.
--
-- Ranks are children of the launcher and die with it, also when it is killed: the kernel kills them, and a guard process kills
-- what they have started in their process groups. A process that left its rank's group dies at the end of the job, but outlives
-- a killed launcher. Ranks on another host die when the connection does.
local core = require "argand.core"
local options = require "argand.run.options"
local plan = require "argand.run.plan"

local M = {}

local function random_name()
  local file = assert(io.open("/dev/urandom", "rb"))
  local bytes = file:read(16)
  file:close()
  return (bytes:gsub(".", function(byte) return ("%02x"):format(byte:byte()) end))
end

local function script_path(opts)
  if opts.net_test then return assert(package.searchpath("argand.run.net_test", package.path)) end
  return opts.script
end

local function has_local_host(hosts, own)
  for _, entry in ipairs(hosts) do
    if plan.is_local(entry.host, own) then return true end
  end
  return false
end

-- Every rank reads the script, so it is no pipe, and nobody's descriptor.
local function check_script(path)
  local file, err = io.open(path, "rb")
  local is_file = file and file:seek "end" and not path:find "/fd/%d+$" and not path:find "^/dev/std"
  local ok = is_file and file:seek "set" and file:read(0)
  if is_file and not ok then -- empty, or a folder
    ok, err = file:read "*a"
    if not ok then err = path .. ": " .. err end
  end
  if file then file:close() end
  if path == "-" or file and not is_file then
    core.raise("file", "run", ("script: expected a file, got %s"):format(path), "every rank reads it for itself; save it first")
  end
  if not ok then core.raise("file", "run", "no script: " .. err) end
end

-- The job as data: what plan.nodes wants, hosts and size.
local function describe_job(opts)
  local own = core.process.self()
  if not own.folder then core.raise("file", "run", "the current folder is gone") end
  local hosts = plan.hosts(opts, own)
  local size = plan.size(opts, hosts)
  if opts.min_n and opts.min_n > size then
    core.raise("option", "run", ("--min-n %d is more than the %d ranks of the job"):format(opts.min_n, size))
  end
  local script = script_path(opts)
  if has_local_host(hosts, own.host) then check_script(script) end
  local name = random_name()
  local argv = {own.program, script}
  for _, argument in ipairs(opts.args) do argv[#argv + 1] = argument end
  return {name = name, port = opts.port or plan.port_of(name), own_host = own.host, opts = opts, argv = argv, restart = 0,
          folder = own.folder, program = own.program, environment = core.process.environment(), hosts = hosts, size = size}
end

-- Several hosts always have a key.
local function decide_key(job)
  local num_hosts = #plan.nodes(job, job.hosts, job.size)
  job.has_key = job.opts.key ~= nil or job.opts.secure or num_hosts > 1
end

local function read_key(path)
  local file, err = io.open(path, "rb")
  local text = file and file:read "*a"
  if file then file:close() end
  if not text then core.raise("file", "run", "key: " .. (err or "cannot be read")) end
  return text
end

local function absolute(path, folder) return path:sub(1, 1) == "/" and path or folder .. "/" .. path end

local function run_job(job)
  local keys = require "argand.run.keys"
  local Job = require "argand.run.job"
  local made
  if job.has_key then
    made = not job.opts.key and keys.make() or nil
    job.key_file, job.made_key = made or absolute(job.opts.key, job.folder), made
  end
  local ok, result = pcall(function()
    if job.has_key then job.key = read_key(job.key_file) end
    return Job.new(job):run()
  end)
  keys.remove(made)
  if not ok then error(result, 0) end
  return result
end

--- Does what `argand run` says; the exit code is that of the first rank that failed (128 + its signal), 2 for a wrong option.
---@param args string[]
---@return integer
function M.main(args)
  local ok, opts = pcall(options.parse, args)
  if not ok then
    io.stderr:write("argand: ", type(opts) == "table" and opts.message or tostring(opts), "\n")
    return 2
  end
  if opts.help then
    print(options.usage)
    return 0
  end
  if opts.agent then return require("argand.run.agent").main() end
  local job = describe_job(opts)
  decide_key(job)
  if opts.dry_run then
    print(plan.describe(job, plan.nodes(job, job.hosts, job.size)))
    return 0
  end
  return run_job(job)
end

return M
