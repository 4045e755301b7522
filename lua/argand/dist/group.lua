--- group: groups of ranks, and the job that this process belongs to. What a group does is done by its member: one of a real job
-- (below), or of a simulated one (simulate.lua).
local core = require "argand.core"
local class = require "argand.class"
local options_of = require "argand.options"

local dist = core.dist
local optional = options_of.optional

local M = {}

-- The job: world, or is_closed; how it was set up.
local job = {}

-- The simulated rank that runs, nil = none; simulate.lua sets it.
M.simulated = nil

-- ---- members of a real job ----

local Member = {}
Member.__index = Member

local function member_of(handle)
  return setmetatable({handle = handle, rank = dist.rank(handle), size = dist.size(handle)}, Member)
end

function Member:run(call) return dist.run(self.handle, call) end

local Work = {}
Work.__index = Work
function Work:wait(timeout) return dist.wait(self.work, timeout) end
function Work:is_done() return dist.is_done(self.work) end

function Member:start(call) return setmetatable({work = dist.start(self.handle, call)}, Work) end
function Member:world_rank(rank) return dist.world_rank(self.handle, rank) end
function Member:split(ranks)
  local handle = dist.split(self.handle, ranks)
  return handle and member_of(handle)
end
function Member:regroup(min_size, grace) return member_of(dist.regroup(self.handle, min_size, grace)) end
function Member:close(wait) return dist.close(self.handle, wait) end
function Member:abort(reason) dist.abort(self.handle, reason) end
function Member:note(text)
  dist.note(self.handle, text)
  local process = core.process
  if process and process.status then process.status(text) end
end
function Member:has_ended() return dist.has_ended(self.handle) end
function Member:plan(call) return dist.plan(self.handle, call) end
function Member:describe() return dist.describe(self.handle) end

-- ---- groups ----

--- A set of ranks that call collectives together. All functions of dist that take a group are its methods, too.
---@class argand.dist.Group
local Group = class.new("Group")

function Group:init(member) self.member = member end

--- This process's rank in the group, from 0.
---@return integer
function Group:rank() return self.member.rank end

--- How many ranks the group has.
---@return integer
function Group:size() return self.member.size end

--- The rank in the world of a rank of this group.
---@param rank integer
---@return integer
function Group:world_rank(rank) return self.member:world_rank(rank) end

--- Whether it has ended: after a failure, until dist.regroup.
---@return boolean
function Group:has_ended() return self.member:has_ended() end

--- Ends the group on this rank.
---@param wait? number seconds to wait for the others at most
---@return true?, argand.Error?
function Group:close(wait) return self.member:close(wait or 0) end

Group.__tostring = function(group)
  return ("Group(rank %d of %d)"):format(group.member.rank, group.member.size)
end

M.Group = Group

--- Makes a group of a member.
---@param member table
---@return argand.dist.Group
function M.of(member) return Group(member) end

--- The value as a group: itself, or the world for nil.
---@param owner string for errors
---@param value? argand.dist.Group
---@return argand.dist.Group
function M.require(owner, value)
  if value == nil then return M.world() end
  if value == false then
    core.raise("argument", owner, "group: expected a group, got false: this rank is not in it", "only its ranks make its calls")
  end
  if not class.is_a(value, Group) then
    core.raise("argument", owner, "group: expected a group, got " .. type(value), "dist.group(ranks) makes one")
  end
  return value
end

--- A group of some ranks of `parent`; false for who is not among them: nil as an option would be the world. All of parent call
-- it.
---@param parent argand.dist.Group
---@param ranks integer[]
---@return argand.dist.Group|false
function M.split(parent, ranks)
  if type(ranks) ~= "table" then core.raise("argument", "group", "ranks: expected a list of ranks, got " .. type(ranks)) end
  local sorted = {}
  for i, rank in ipairs(ranks) do
    if type(rank) ~= "number" or rank ~= math.floor(rank) then
      core.raise("argument", "group", "ranks: expected whole numbers, got " .. tostring(rank))
    end
    sorted[i] = rank
  end
  table.sort(sorted)
  local member = parent.member:split(sorted)
  return member and Group(member) or false
end

-- ---- the job ----

local INIT_OPTIONS = {
  rank = optional.number, size = optional.number, local_rank = optional.number, local_size = optional.number,
  coordinator = optional.string, job = optional.string, epoch = optional.number, key_file = optional.string,
  address = optional.string, transport = optional.string, timeout = optional.number, init_timeout = optional.number,
  heartbeat = optional.number, expiry = optional.number,
}

-- What the launcher left in the environment; nothing is a job of one rank.
local function detect()
  local found, err = require("argand.dist.environment").detect(os.getenv)
  if found then return found end
  if type(err) == "string" then core.raise("value", "init", err, "see dist.init for what can be set") end
  if err ~= nil then error(err, 0) end
  return {source = "none"}
end

local function is_same(a, b)
  for name, value in pairs(a) do if b[name] ~= value then return false end end
  return true
end

--- See dist.init.
function M.init(given)
  local opts = options_of.read("init", given, INIT_OPTIONS)
  if M.simulated then return end
  if job.world then
    if next(opts) == nil or is_same(opts, job.settings) then return end
    core.raise("state", "init", "this process has joined a job already", "dist.close() leaves it")
  end
  local settings = detect()
  for name, value in pairs(opts) do settings[name] = value end
  if next(opts) ~= nil and settings.source == "none" then settings.source = "options" end
  settings.size, settings.rank = settings.size or 1, settings.rank or 0
  job.world = Group(member_of(dist.open(settings)))
  job.settings, job.is_closed = settings, false
end

--- The group of all ranks; joins the job when that was not done.
---@return argand.dist.Group
function M.world()
  local rank = M.simulated
  if rank then return rank.world end
  if not job.world then
    if job.is_closed then
      core.raise("state", "dist", "this process has left its job", "dist.init() joins one")
    end
    M.init()
  end
  return job.world
end

--- See dist.close.
function M.close(wait)
  local rank = M.simulated
  if rank then return rank.world:close(wait) end
  local world = job.world
  if not world then return true end
  job.world, job.is_closed = nil, true
  return world:close(wait or 5)
end

--- See dist.regroup.
function M.regroup(min_size, grace)
  local world = M.world()
  local new = Group(world.member:regroup(min_size, grace))
  if M.simulated then M.simulated.world = new else job.world = new end
  return new
end

--- How the job was set up: what the environment and the options gave.
---@return table
function M.settings()
  if M.simulated then return M.simulated.settings end
  M.world()
  return job.settings
end

--- Whether a job was joined and not left.
---@return boolean
function M.is_initialized() return M.simulated ~= nil or job.world ~= nil end

return M
