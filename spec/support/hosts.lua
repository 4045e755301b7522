--- hosts: network namespaces that stand for hosts: joined by a cable, they share a network, and no memory as far as ranks know.
--
--   local hosts, refusal = require("support.hosts").make()
--   job.start {…, coordinator = hosts:coordinator(), each = function(rank) return {wrapper = hosts:wrapper(where[rank])} end}
--   hosts:free()
local core = require "argand.core"
local job = require "support.job"
local process = core.process

local M = {}
local Hosts = {}
Hosts.__index = Hosts

local ADDRESSES = {"10.78.0.1", "10.78.0.2"}
local FIRST_PORT = 23456 -- nobody else is in there

--- Runs a command line; whether it went well, and what it printed.
function M.shell(text)
  local pipe = io.popen(text .. " 2>&1; echo \"code $?\"")
  local out = pipe:read "*a"
  pipe:close()
  return out:match "code (%d+)\n$" == "0", (out:gsub("code %d+\n$", ""))
end

-- A process that keeps namespaces alive.
local function hold(argv)
  local child, err = process.spawn {argv = argv, env = process.environment(), stdin = "null", stdout = "pipe", stderr = "pipe"}
  if not child then return nil, err end
  local text, deadline, is_closed = "", core.now() + 30, false
  while not text:find "here\n" and core.now() < deadline and not is_closed do
    process.poll({child.stdout, child.stderr}, nil, 0.1)
    for _, fd in ipairs {child.stdout, child.stderr} do
      local bytes = process.read(fd)
      text = text .. (bytes or "")
      is_closed = is_closed or bytes == false
    end
  end
  process.close(child.stdout)
  process.close(child.stderr)
  if text:find "here\n" then return child end
  process.kill(child.pid, job.SIGKILL)
  return nil, text
end

--- The words that run a command on host 1 or 2.
function Hosts:wrapper(index)
  return {"nsenter", "-t", tostring(self.holders[index].pid), "-U", "-n", "--preserve-credentials"}
end

function Hosts:shell(index, text) return M.shell(table.concat(self:wrapper(index), " ") .. " " .. text) end

--- Where rank 0, on host 1, listens: another port for each job.
function Hosts:coordinator()
  self.num_jobs = self.num_jobs + 1
  return ("tcp://%s:%d"):format(ADDRESSES[1], FIRST_PORT + self.num_jobs)
end

--- Gives both directions of the cable a rate ("1gbit"); false when this system cannot.
function Hosts:shape(rate)
  for index = 1, 2 do
    local rule = ("tc qdisc replace dev cable%d root tbf rate %s burst 256k latency 50ms"):format(index, rate)
    if not self:shell(index, rule) then return false end
  end
  return true
end

--- Pulls the cable out, or puts it back in.
function Hosts:plug(is_in)
  local is_ok, out = self:shell(1, "ip link set cable1 " .. (is_in and "up" or "down"))
  assert(is_ok, out)
end

function Hosts:free()
  for _, holder in pairs(self.holders) do process.kill(holder.pid, job.SIGKILL) end
  job.alone(function() job.sleep(0.1) end) -- reaps them
end

local function make(hosts)
  for _, program in ipairs {"unshare", "nsenter", "ip"} do
    if not M.shell("command -v " .. program) then return program .. " is not installed" end
  end
  local keep, err = {"unshare", "-n", "sh", "-c", "echo here; exec sleep 600"}
  hosts.holders[1], err = hold {"unshare", "-r", unpack(keep, 2)}
  if not hosts.holders[1] then return "namespaces are refused: " .. err:gsub("\n", " ") end
  local argv = hosts:wrapper(1)
  for _, word in ipairs(keep) do argv[#argv + 1] = word end
  hosts.holders[2], err = hold(argv)
  if not hosts.holders[2] then return "a second namespace is refused: " .. err:gsub("\n", " ") end
  local steps = {{1, ("ip link add cable1 type veth peer name cable2 netns %d"):format(hosts.holders[2].pid)}}
  for index, address in ipairs(ADDRESSES) do
    steps[#steps + 1] = {index, ("ip addr add %s/24 dev cable%d"):format(address, index)}
    steps[#steps + 1] = {index, ("ip link set cable%d up"):format(index)}
    steps[#steps + 1] = {index, "ip link set lo up"}
  end
  for _, step in ipairs(steps) do
    local is_ok, out = hosts:shell(step[1], step[2])
    if not is_ok then return ("%s: %s"):format(step[2], (out:gsub("\n", " "))) end
  end
end

--- Two hosts; nil and the reason when this system does not allow it.
function M.make()
  local hosts = setmetatable({holders = {}, num_jobs = 0}, Hosts)
  local refusal = make(hosts)
  if not refusal then return hosts end
  hosts:free()
  return nil, refusal
end

return M
