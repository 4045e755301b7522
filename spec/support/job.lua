--- job: ranks of distributed jobs as child processes, many jobs at once, each driven by a coroutine that reads like a story.
--
--   job.together({{name = "one", run = function()
--     local ranks = job.start {size = 3, script = "spec/support/dist_worker.lua"}
--     job.wait(function() return ranks[1]:first "ready" end, 10)
--     ranks[1]:kill(9)
--     job.finish(ranks, 10)
--   end}})
--
-- Ranks are started directly, not by `argand run`, which would hide a hang by killing it. What they print as "@name key=value"
-- with tabs between is an event.
local bit = require "bit"
local ffi = require "ffi"
local core = require "argand.core"
local process = core.process

local M = {SIGINT = 2, SIGKILL = 9, SIGCONT = 18, SIGSTOP = 19}

ffi.cdef [[
struct argand_spec_address {uint16_t family, port_be; uint32_t host; char zero[8];};
int socket(int domain, int type, int protocol);
int bind(int fd, const void *address, unsigned len);
int listen(int fd, int backlog);
int setsockopt(int fd, int level, int name, const void *value, unsigned len);
int getsockname(int fd, void *address, unsigned *len);
]]
local AF_INET, SOCK_STREAM, SOCK_NONBLOCK, SOCK_CLOEXEC, SOL_SOCKET, SO_REUSEADDR = 2, 1, 0x800, 0x80000, 1, 2
M.TCP_SOCKET = bit.bor(SOCK_STREAM, SOCK_NONBLOCK, SOCK_CLOEXEC)

--- The sockaddr of 127.0.0.1:port and its length.
function M.loopback(port)
  local address = ffi.new "struct argand_spec_address"
  address.family, address.host = AF_INET, ffi.abi "le" and 0x0100007f or 0x7f000001
  address.port_be = ffi.abi "le" and bit.bor(bit.lshift(bit.band(port, 255), 8), bit.rshift(port, 8)) or port
  return address, ffi.sizeof(address)
end

local function bound_socket()
  local fd = ffi.C.socket(AF_INET, M.TCP_SOCKET, 0)
  assert(fd >= 0, "no socket")
  local address, len = M.loopback(0)
  assert(ffi.C.bind(fd, address, len) == 0, "no port is free")
  ffi.C.getsockname(fd, address, ffi.new("unsigned[1]", len))
  return fd, bit.bor(bit.lshift(bit.band(address.port_be, 255), 8), bit.rshift(address.port_be, 8))
end

--- A socket that listens at some port of the loopback interface, and the port.
function M.listen()
  local fd, port = bound_socket()
  assert(ffi.C.listen(fd, 16) == 0, "it does not listen")
  return fd, port
end

--- A port at which nothing listens, for a rank that will. It stays bound here to the end of this process: nobody else is given
-- it, and only who says that an address may be used again can listen there, as ZeroMQ does.
function M.free_port()
  local fd, port = bound_socket()
  ffi.C.setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, ffi.new("int[1]", 1), 4)
  return port
end

-- ---- ranks ----

local Rank = {}
Rank.__index = Rank

local ranks_of_pid = {}
local readers = {} -- fd -> function() that reads it

--- Calls fn whenever there is something to read at the descriptor.
function M.on_readable(fd, fn) readers[fd] = fn end

local function start_time(pid)
  local file = io.open(("/proc/%d/stat"):format(pid))
  if not file then return nil end
  local fields, count = file:read("*a"):gsub("^.*%) ", ""), 0
  file:close()
  for field in fields:gmatch "%S+" do
    count = count + 1
    if count == 20 then return field end
  end
end

local function take_line(rank, line)
  rank.lines[#rank.lines + 1] = line
  local name, rest = line:match "^@([%w_]+)(.*)$"
  if not name then return end
  local event = {name = name}
  for key, value in rest:gmatch "\t([%w_]+)=([^\t]*)" do event[key] = value end
  event.at = tonumber(event.at)
  rank.events[#rank.events + 1] = event
end

local function read_stream(rank, fd, key)
  local bytes = process.read(fd)
  if bytes == false then
    process.close(fd)
    readers[fd], rank.streams[key] = nil, nil
  elseif bytes then
    local text = (rank.partial[key] or "") .. bytes
    for line in text:gmatch "([^\n]*)\n" do
      if key == "stdout" then take_line(rank, line) else rank.lines[#rank.lines + 1] = "! " .. line end
    end
    rank.partial[key] = text:match "([^\n]*)$"
  end
end

local num_jobs = 0
local FOREIGN = {"^ARGAND_", "^RANK=", "^WORLD_SIZE=", "^LOCAL_", "^MASTER_", "^OMPI_", "^PMIX?_", "^SLURM_", "^TMPDIR="}

-- What children get of our environment: nothing that describes another job.
local function base_environment()
  local env = {}
  for _, entry in ipairs(process.environment()) do
    local is_foreign = false
    for _, pattern in ipairs(FOREIGN) do is_foreign = is_foreign or entry:find(pattern) ~= nil end
    if not is_foreign or entry:find "^ARGAND_EAGER" or entry:find "^ARGAND_CHECK" then env[#env + 1] = entry end
  end
  return env
end

--- A name that no other job has.
function M.new_name()
  num_jobs = num_jobs + 1
  return ("spec-%d-%d-%d"):format(process.self().pid, num_jobs, math.floor(core.now() * 1000) % 1000000)
end

--- Starts one rank of a job that job.start described.
function M.start_rank(opts, index)
  local own = opts.each and opts.each(index) or {}
  local env = base_environment()
  local variables = {
    ARGAND_RANK = index, ARGAND_WORLD_SIZE = opts.size, ARGAND_LOCAL_RANK = index, ARGAND_LOCAL_WORLD_SIZE = opts.size,
    ARGAND_JOB = opts.job, ARGAND_COORDINATOR = opts.coordinator, ARGAND_TRANSPORT = opts.transport, ARGAND_THREADS = 1,
    ARGAND_EPOCH = opts.epoch, TMPDIR = M.folder,
  }
  for _, more in ipairs {opts.env or {}, own.env or {}} do
    for name, value in pairs(more) do variables[name] = value end
  end
  for name, value in pairs(variables) do
    if value then env[#env + 1] = ("%s=%s"):format(name, tostring(value)) end
  end
  local argv = {}
  local program = {process.self().program, opts.script}
  for _, list in ipairs {own.wrapper or {}, program, opts.args or {}, own.args or {}} do
    for _, word in ipairs(list) do argv[#argv + 1] = tostring(word) end
  end
  local child = assert(process.spawn {argv = argv, env = env, stdin = "null", stdout = "pipe", stderr = "pipe"})
  local rank = setmetatable({pid = child.pid, index = index, events = {}, lines = {}, partial = {}, started = core.now(),
                             streams = {stdout = child.stdout, stderr = child.stderr}}, Rank)
  rank.start_time = start_time(rank.pid)
  ranks_of_pid[rank.pid] = rank
  for key, fd in pairs(rank.streams) do M.on_readable(fd, function() read_stream(rank, fd, key) end) end
  return rank
end

--- Starts the ranks of a job: {size, script, args, env, transport, coordinator, job, epoch, each(rank) -> {args, env, wrapper},
-- only = {ranks to start}}. Returns {[0] = rank, …}; what is missing in opts is filled in.
function M.start(opts)
  opts.job = opts.job or M.new_name()
  if not opts.coordinator then
    opts.coordinator = opts.transport == "tcp" and ("tcp://127.0.0.1:%d"):format(M.free_port()) or "ipc://@argand-" .. opts.job
  end
  local ranks, wanted = {}, opts.only
  if not wanted then
    wanted = {}
    for i = 0, opts.size - 1 do wanted[#wanted + 1] = i end
  end
  for _, index in ipairs(wanted) do ranks[index] = M.start_rank(opts, index) end
  return ranks
end

function Rank:kill(number) return process.kill(self.pid, number) end

--- The first event of that name.
function Rank:first(name)
  for _, event in ipairs(self.events) do
    if event.name == name then return event end
  end
end

--- Whether it has ended, and all that it printed was read.
function Rank:has_exited() return self.code ~= nil and next(self.streams) == nil end

--- Everything the rank printed, for messages.
function Rank:text() return ("rank %d: %s"):format(self.index, table.concat(self.lines, " | ")) end

--- Whether the process is there still, be it as a zombie.
function Rank:is_left() return start_time(self.pid) == self.start_time and self.start_time ~= nil end

-- ---- the loop ----

local function reap()
  while true do
    local pid, code, signal = process.wait()
    if not pid then return end
    local rank = ranks_of_pid[pid]
    if rank then
      rank.code, rank.signal, rank.ended = code or -signal, signal, core.now()
      ranks_of_pid[pid] = nil
    end
  end
end

local function turn(seconds)
  local fds, called = {}, {}
  for fd in pairs(readers) do fds[#fds + 1] = fd end
  for _, fd in ipairs(process.poll(fds, nil, seconds)) do called[#called + 1] = fd end
  for _, fd in ipairs(called) do
    if readers[fd] then readers[fd]() end
  end
  reap()
end

--- Within a task of job.together: goes on when predicate() is true, or after so many seconds. Returns what it returned.
function M.wait(predicate, seconds) return coroutine.yield(predicate, core.now() + seconds) end

--- Within a task: waits for so many seconds.
function M.sleep(seconds) M.wait(function() return false end, seconds) end

local function advance(task, ...)
  local ok, predicate, deadline = coroutine.resume(task.thread, ...)
  if coroutine.status(task.thread) == "dead" then
    task.is_done, task.seconds = true, core.now() - task.began
    if not ok then task.error = predicate end
  elseif ok then
    task.predicate, task.deadline = predicate, deadline
  end
end

local function begin(task)
  task.began = core.now()
  task.thread = coroutine.create(task.run)
  advance(task, task)
end

--- Runs tasks {name, run, weight = 1} at once, as far as their weights sum up to `capacity` at most. A task that raised has the
-- field `error`.
function M.together(tasks, capacity)
  local next_index, running, load = 1, {}, 0
  while next_index <= #tasks or #running > 0 do
    local task = tasks[next_index]
    while task and (#running == 0 or load + (task.weight or 1) <= capacity) do
      running[#running + 1] = task
      load = load + (task.weight or 1)
      begin(task)
      next_index = next_index + 1
      task = tasks[next_index]
    end
    turn(0.003)
    for i = #running, 1, -1 do
      local each = running[i]
      if not each.is_done then
        local value = each.predicate()
        if value or core.now() >= each.deadline then advance(each, value) end
      end
      if each.is_done then
        load = load - (each.weight or 1)
        table.remove(running, i)
      end
    end
  end
end

--- One task alone; its error is raised here.
function M.alone(run)
  local task = {name = "alone", run = run}
  M.together({task}, 1)
  if task.error then error(task.error, 0) end
end

--- Within a task: waits until all ranks have ended; kills those that have not after so many seconds. Returns a list of what is
-- wrong with that.
function M.finish(ranks, seconds)
  local function all_ended()
    for _, rank in pairs(ranks) do
      if not rank:has_exited() then return false end
    end
    return true
  end
  local problems = {}
  if not M.wait(all_ended, seconds) then
    for _, rank in pairs(ranks) do
      if not rank:has_exited() then
        problems[#problems + 1] = ("rank %d did not end"):format(rank.index)
        rank:kill(M.SIGKILL)
      end
    end
    M.wait(all_ended, 10)
  end
  for _, rank in pairs(ranks) do
    if rank:is_left() then problems[#problems + 1] = ("rank %d: process %d is left"):format(rank.index, rank.pid) end
  end
  return problems
end

-- ---- what others do ----

local TICKS = 100 -- in which the system counts a second

local function sum_of(text, first, last)
  local sum, number = 0, 0
  for word in text:gmatch "%d+" do
    number = number + 1
    if number >= first and number <= last then sum = sum + tonumber(word) end
  end
  return sum
end

local function first_line(path)
  local file = assert(io.open(path))
  local line = file:read "*l"
  file:close()
  return line
end

--- The processor time in seconds that has gone to others so far: to other programs, or to other guests of the host; not to this
-- process and the children of it that have been reaped.
function M.foreign_time()
  local times = first_line "/proc/stat" -- user nice system idle iowait irq softirq steal
  local own = first_line("/proc/self/stat"):gsub("^.*%) %u ", "") -- from the parent's pid on
  return (sum_of(times, 1, 3) + sum_of(times, 6, 8) - sum_of(own, 11, 14)) / TICKS
end

-- ---- what is left behind ----

local function list(folder)
  local names = {}
  local pipe = io.popen(("ls -A '%s' 2>/dev/null"):format(folder))
  for name in pipe:lines() do names[name] = true end
  pipe:close()
  return names
end

local function socket_names(job_pattern)
  local names = {}
  for line in io.lines "/proc/net/unix" do
    local name = line:match "@.*$"
    if name and name:find(job_pattern) then names[name] = true end
  end
  return names
end

M.folder = assert(process.temporary_folder())
-- Other programs of this machine have files there, too: ours would bear the name of a job, or the library's.
local function is_ours(name) return name:find "argand" or name:find(("spec-%d-"):format(process.self().pid), 1, true) end
local shm_before = list "/dev/shm"

--- What jobs of this process have left in /dev/shm, in their temporary folder and among abstract sockets: a list of names.
function M.leftovers()
  local found = {}
  for name in pairs(list "/dev/shm") do
    if not shm_before[name] and is_ours(name) then found[#found + 1] = "/dev/shm/" .. name end
  end
  for name in pairs(list(M.folder)) do found[#found + 1] = M.folder .. "/" .. name end
  for name in pairs(socket_names(("spec%%-%d%%-"):format(process.self().pid))) do found[#found + 1] = name end
  for pid in pairs(ranks_of_pid) do found[#found + 1] = "process " .. pid end
  return found
end

--- Removes the temporary folder.
function M.remove_folder() os.execute(("rm -rf '%s'"):format(M.folder)) end

return M
