--- ddp: data-parallel training: replicas that stay equal while each rank computes on batches of its own.
--
--   local job = dist.register(model)
--   for x, y in job:each(loader) do
--     loss_of(model(x), y):backward()  -- gradients are reduced while this runs
--     job:step(optimizer)              -- waits for the rest; the step is made with the mean over all ranks
--     optimizer:zero_grad()
--   end
local core = require "argand.core"
local class = require "argand.class"
local groups = require "argand.dist.group"
local options_of = require "argand.options"

local ddp = core.ddp
local optional = options_of.optional

local M = {}

-- The job of a registered tensor by its id; jobs are held by who made them.
local jobs = setmetatable({}, {__mode = "v"})

-- ---- what is to be registered ----

local function is_module(value) return class.is_a(value, require("argand.nn.module")) end

-- List of {name, tensor}: a module's parameters, a list's values under their position, or a table's under their name.
local function entries_of(owner, target)
  local entries = {}
  if is_module(target) then
    for name, parameter in target:named_parameters() do entries[#entries + 1] = {name, parameter} end
    return entries
  end
  if type(target) ~= "table" or getmetatable(target) ~= nil then
    core.raise("argument", owner, "params: expected a module or a list of tensors, got " ..
      (core.is_tensor(target) and "a tensor" or type(target)), "pass the model, or model:parameters()")
  end
  for position, value in ipairs(target) do entries[position] = {("[%d]"):format(position), value} end
  local names = {}
  for name in pairs(target) do
    if type(name) == "string" then names[#names + 1] = name end
  end
  table.sort(names)
  for _, name in ipairs(names) do entries[#entries + 1] = {name, target[name]} end
  return entries
end

local function buffers_of(target)
  local names, tensors = {}, {}
  if not is_module(target) then return names, tensors end
  for name, buffer in target:named_buffers() do
    names[#names + 1], tensors[#tensors + 1] = name, buffer
  end
  return names, tensors
end

local TENSOR_HINT = "what is not a tensor has no gradient; leave it out"

-- All that cannot be registered: list of {name, code, reason, hint, tensor}.
local function offenders_of(entries)
  local offenders, known = {}, {}
  for _, entry in ipairs(entries) do
    local name, value = entry[1], entry[2]
    local code, reason, hint
    if not core.is_tensor(value) then
      code, reason, hint = "argument", "is a " .. type(value) .. ", not a tensor", TENSOR_HINT
    elseif known[value] then
      code, reason, hint = "argument", "is listed twice, first as '" .. known[value] .. "'", "list it once"
    else
      code, reason, hint = ddp.check(value)
      known[value] = name
    end
    if code then
      offenders[#offenders + 1] = {
        name = name, code = code, reason = reason, hint = hint, tensor = core.is_tensor(value) and value or nil,
      }
    end
  end
  return offenders
end

--- Tells whether tensors can be registered; if not, all that keeps them from it.
---@param params argand.nn.Module|argand.Tensor[]
---@return boolean, {name: string, code: string, reason: string, hint: string, tensor: argand.Tensor?}[]? offenders
function M.check(params)
  local offenders = offenders_of(entries_of("check", params))
  if #offenders == 0 then return true end
  return false, offenders
end

local function refusal_of(offenders)
  local lines = {}
  for i, o in ipairs(offenders) do
    lines[i] = ("'%s' %s"):format(o.name, o.reason)
    if i == 4 and #offenders > 4 then
      lines[5] = ("and %d more"):format(#offenders - 4)
      break
    end
  end
  return table.concat(lines, "; ")
end

-- One error for all offenders, after the other ranks were told.
local function refuse(group, offenders, options)
  local code = "unsupported"
  for _, o in ipairs(offenders) do
    if o.code ~= "unsupported" then code = "argument" end
  end
  local text = refusal_of(offenders)
  options.refusal = text:sub(1, 190)
  pcall(ddp.open, group.member.handle, {}, {}, {}, {}, options)
  local _, err = pcall(core.raise, code, "register", "cannot register: " .. text, offenders[1].hint)
  if type(err) == "table" then
    err.offenders, err.rank = offenders, group:world_rank(group:rank())
  end
  error(err, 0)
end

-- ---- jobs ----

--- Registered parameters: their gradients, steps, and what is checked on the way. `parameters` and `names` are in the order of
-- registration; `contributors` and `is_finite` are those of the last step.
---@class argand.dist.Job
local Job = class.new("Job")

function Job:init(fields)
  for name, value in pairs(fields) do self[name] = value end
  self.steps, self.contributors, self.is_finite, self.report = 0, 0, true, ""
end

Job.__tostring = function(job)
  return ("Job(%d parameters, %s)"):format(#job.parameters, tostring(job.group))
end

--- Ends a step's gradients: reduces what backward did not, waits, and makes the mean p.grad. Returns over how many ranks it
-- is: those that had a batch. With {contribute = false} this rank has none, and counts for nothing.
---@param opts? {contribute: boolean}
---@return integer contributors
function Job:sync(opts)
  local contribute = options_of.read("sync", opts, {contribute = true}).contribute
  self.contributors, self.is_finite, self.report = ddp.sync(self.handle, contribute)
  return self.contributors
end

-- In a sharded job the optimizer sees the gradients of this rank's share only, and so has state for no other parameter.
local function update(job, optimizer)
  if not job.shard then return optimizer:step() end
  for i, parameter in ipairs(job.parameters) do
    if job.owners[i] ~= job.group:rank() then parameter.grad = nil end
  end
  optimizer:step()
  ddp.share(job.handle)
end

-- Another model's optimizer would train nothing, without a word. One that is not of argand.optim is taken as it is.
local function check_optimizer(job, optimizer)
  if type(optimizer) ~= "table" or not optimizer.step then
    core.raise("argument", "step", "optimizer: expected an optimizer, got " .. type(optimizer), "optim.SGD(model:parameters())")
  end
  if job.optimizer == optimizer or type(rawget(optimizer, "groups")) ~= "table" then return end
  for _, group in ipairs(optimizer.groups) do
    for _, parameter in ipairs(group.params) do
      local place = M.registered(parameter)
      if place and place.job == job then return end
    end
  end
  core.raise("argument", "step", "optimizer: it has none of the parameters that were registered",
    "make the optimizer of the same model:parameters()")
end

--- job:sync() and, where all ranks are agreed that it is finite, optimizer:step(). With hash_every the replicas are compared
-- now and then.
---@param optimizer argand.optim.Optimizer
---@param opts? {contribute: boolean}
---@return integer contributors 0: no rank had a batch, and nothing was done
---@return boolean stepped
function Job:step(optimizer, opts)
  check_optimizer(self, optimizer)
  self.optimizer = optimizer
  if self:sync(opts) == 0 then return 0, false end
  if self.is_finite then update(self, optimizer) end
  self.steps = self.steps + 1
  if self.hash_every > 0 and self.steps % self.hash_every == 0 then self:verify() end
  return self.contributors, self.is_finite
end

--- Runs fn(...), in which backward only adds gradients up on this rank; the next backward after it, or job:step, reduces the
-- sums. Returns what fn returns.
---@param fn function
---@return any ...
function Job:no_sync(fn, ...)
  if type(fn) ~= "function" then core.raise("argument", "no_sync", "fn: expected a function, got " .. type(fn)) end
  local before = ddp.set_accumulating(self.handle, true)
  local results = {n = 0}
  local function keep(ok, ...)
    results = {n = select("#", ...), ...}
    return ok
  end
  local ok = keep(pcall(fn, ...))
  ddp.set_accumulating(self.handle, before)
  if not ok then error(results[1], 0) end
  return unpack(results, 1, results.n)
end

local function batches_of(loader)
  if type(loader) == "function" then return loader end
  if (type(loader) == "table" or type(loader) == "userdata") and loader.batches then return loader:batches() end
  core.raise("argument", "each", "loader: expected a loader or an iterator, got " .. type(loader))
end

-- A step of a rank that has no batch left: the calls of a step, without a batch.
local function shadow_step(job)
  if not job.optimizer then
    core.raise("state", "each", "this rank has no batch at all, and so no optimizer is known",
      "pass {optimizer = optimizer}, so that its parameters follow those of the others")
  end
  job:step(job.optimizer, {contribute = false})
  job.optimizer:zero_grad()
end

--- Iterates over the batches of a loader, or of an iterator, where ranks may have different numbers of them: one that has no
-- more makes the others' steps along, contributing nothing, until nobody has a batch. So all come to the end together, with
-- equal replicas. What a step of the loop calls besides job:step and zero_grad, such as a collective or a schedule, has to be
-- in `shadow` too.
---@param loader argand.data.Loader|fun(): ...
---@param opts? {optimizer: argand.optim.Optimizer, shadow: fun(job: argand.dist.Job)}
---@return fun(): ...
function Job:each(loader, opts)
  local read = options_of.read("each", opts, {optimizer = optional.table, shadow = optional["function"]})
  local next_batch, shadow, is_exhausted = batches_of(loader), read.shadow or shadow_step, false
  self.optimizer = read.optimizer or self.optimizer
  local function pass(first, ...)
    if first ~= nil then return first, ... end
    is_exhausted = true
    repeat shadow(self) until self.contributors == 0
  end
  return function()
    if is_exhausted then return nil end
    return pass(next_batch())
  end
end

--- Compares all ranks' parameters, bit by bit: an error "mismatch" names the first that differs, and the ranks.
function Job:verify() ddp.verify(self.handle) end

--- What there was so far: steps, skipped (steps that were not finite), buckets, bytes (of gradients), early (reductions that
-- backward started), hidden_s and exposed_s (seconds that reductions took while backward ran; that steps waited for them).
---@return table<string, number>
function Job:stats() return ddp.stats(self.handle) end

--- Ends the job: parameters and gradients are ordinary tensors again. In the middle of a step the group ends with it.
function Job:close() ddp.free(self.handle) end

-- ---- registration ----

local REGISTER_OPTIONS = {
  group = optional.any, bucket_mib = optional.number, first_bucket_mib = optional.number, compress = optional.string,
  broadcast = optional.any, check_finite = optional.string, hash_every = 0, shared_result = false, shard = optional.any,
  timeout = optional.number,
}

local function bytes_of(name, mib)
  if mib == nil then return 0 end
  if not (mib > 0 and mib <= 2 ^ 20) then
    core.raise("value", "register", ("%s: expected a number above 0, got %g"):format(name, mib))
  end
  return math.max(1, math.floor(mib * 2 ^ 20))
end

local function start_of(broadcast)
  if broadcast == nil or broadcast == true then return "broadcast" end
  if broadcast == "verify" then return "verify" end
  core.raise("value", "register", ('broadcast: expected true or "verify", got %s'):format(tostring(broadcast)))
end

local function shard_of(shard)
  if shard == true then return "ranks" end
  if not shard or shard == "ranks" or shard == "host" then return shard or nil end
  core.raise("value", "register", ('shard: expected true, "ranks" or "host", got %s'):format(tostring(shard)))
end

---@class argand.dist.RegisterOptions
---@field group? argand.dist.Group default the world
---@field bucket_mib? number how much gradient travels at once; 8
---@field first_bucket_mib? number of the bucket that is reduced first; 1
---@field compress? string gradients travel as "bf16" or "f16"
---@field broadcast? boolean|string rank 0's values for all (true), or "verify": they are equal
---@field check_finite? string "skip" leaves steps with NaN or Inf out on all ranks, "error" raises there
---@field hash_every? integer compares the replicas every so many steps; 0 = never
---@field shared_result? boolean p.grad is memory that all ranks of a host read; see register
---@field shard? boolean|string each rank updates its share of the parameters only: "ranks" (true) or "host"; see register
---@field timeout? number seconds that a reduction may take; the group's

--- Makes a job of a model's parameters, on all ranks of the group together; its buffers are made equal, too. Ranks compare
-- names, shapes, dtypes and order first: what differs is an error "mismatch" on all of them. Tensors that cannot be registered
-- are all in one error, with a list in err.offenders, and the other ranks learn of it.
--
-- What check_finite finds is named by rank and parameter in the error, or in job.report. With shared_result the ranks of a host
-- read one mean, which takes less time and memory, and nobody may write to gradients (no clipping in place).
--
-- With shard job:step updates this rank's own parameters (registered(t).owner), takes the gradients of the others away, and
-- brings the others' new values from their owners; the result is the same, bit by bit. An optimizer then has state for its
-- rank's own parameters only, and state_dict() holds another part on every rank. With "host" the parameters are divided among
-- the ranks of each host, which have them in common: one copy of parameters and state a host, nothing is sent. What a rank
-- writes to a parameter by other means than job:step is then written for all ranks of its host, until job:close.
--
-- The job has a group of its own: other collectives may be called at any time, in the same order on all ranks.
---@param params argand.nn.Module|argand.Tensor[]
---@param opts? argand.dist.RegisterOptions
---@return argand.dist.Job
function M.register(params, opts)
  local read = options_of.read("register", opts, REGISTER_OPTIONS)
  local group = groups.require("register", read.group)
  local entries = entries_of("register", params)
  local options = {
    bucket_bytes = bytes_of("bucket_mib", read.bucket_mib), compress = read.compress, check_finite = read.check_finite,
    first_bucket_bytes = bytes_of("first_bucket_mib", read.first_bucket_mib), shared_result = read.shared_result,
    shard = shard_of(read.shard), start = start_of(read.broadcast), timeout = read.timeout,
  }
  if not options_of.is_between(read.hash_every, 0) or read.hash_every % 1 ~= 0 then
    core.raise("value", "register", "hash_every: expected a whole number >= 0, got " .. tostring(read.hash_every))
  end
  if not group.member.handle then
    core.raise("unsupported", "register", "simulated ranks share one process and its parameters", "run it by argand run -n")
  end
  local offenders = offenders_of(entries)
  if #offenders > 0 then refuse(group, offenders, options) end
  local names, tensors = {}, {}
  for i, entry in ipairs(entries) do names[i], tensors[i] = entry[1], entry[2] end
  local buffer_names, buffers = buffers_of(params)
  local handle = ddp.open(group.member.handle, names, tensors, buffer_names, buffers, options)
  local owners = {}
  for i, tensor in ipairs(tensors) do owners[i] = select(6, ddp.find(tensor)) end
  local job = Job {
    handle = handle, group = group, names = names, parameters = tensors, owners = owners, hash_every = read.hash_every,
    shard = options.shard ~= nil and group:size() > 1,
  }
  jobs[ddp.id(handle)] = job
  return job
end

--- What a tensor is registered as; nil when it is not.
---@param t argand.Tensor
---@return {job: argand.dist.Job, name: string, position: integer, bucket: integer, owner: integer}?
function M.registered(t)
  if not core.is_tensor(t) then core.raise("argument", "registered", "t: expected a tensor, got " .. type(t)) end
  local id, name, position, bucket, offset, owner = ddp.find(t)
  if not id then return nil end
  return {job = jobs[id], name = name, position = position, bucket = bucket, offset = offset, owner = owner}
end

return M
