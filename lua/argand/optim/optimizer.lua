--- The base of the optimizers: parameter groups, learning rates, and one kernel call a step.
--
-- A group is {params = {...}, lr = ..., ...}: its options are those of the constructor unless it has its own.
-- Parameters are known by identity; their state lives in `self.state[parameter]`.

local ag = require "argand"
local core = require "argand.core"
local class = require "argand.class"
local options = require "argand.options"

---@class argand.optim.Optimizer
---@field lr number of the first group; assigning sets it in every group
---@field groups table[]
local Optimizer = class "Optimizer"

function Optimizer.__index(self, key)
  if key == "lr" then return rawget(self, "groups")[1].lr end
  return getmetatable(self)[key]
end

function Optimizer.__newindex(self, key, value)
  if key ~= "lr" then return rawset(self, key, value) end
  if not options.is_between(value, 0) then
    core.raise("value", class.of(self).class_name, "lr: expected a number >= 0, got " .. tostring(value))
  end
  for _, group in ipairs(self.groups) do group.lr = value end
end

local float_dtypes = { f64 = true, f32 = true, f16 = true, bf16 = true }

-- Why a value cannot be trained, nil when it can.
local function refusal(value)
  if not core.is_tensor(value) then return "is a " .. type(value) .. ", not a tensor" end
  if not float_dtypes[value.dtype] then return "has dtype " .. value.dtype .. ", not a float dtype" end
  if not value.is_leaf then return "is the result of an op, not a leaf" end
  if not value.requires_grad then return "does not require gradients" end
end

local function check_parameters(owner, groups)
  local faults, known, position = {}, {}, 0
  for _, group in ipairs(groups) do
    for _, parameter in ipairs(group.params) do
      position = position + 1
      local fault = refusal(parameter) or (known[parameter] and "is in the list twice")
      if fault then faults[#faults + 1] = ("parameter %d %s"):format(position, fault) end
      if not fault then known[parameter] = true end
    end
  end
  if #faults > 0 then core.raise("argument", owner, table.concat(faults, "; ")) end
  if position == 0 then
    core.raise("argument", owner, "params: the list is empty", "pass model:parameters()")
  end
end

local function make_groups(owner, params, defaults)
  if type(params) ~= "table" then
    core.raise("argument", owner, "params: expected a list of tensors or of groups, got " .. type(params),
      "pass model:parameters()")
  end
  local is_list = core.is_tensor(params[1]) or type(params[1]) ~= "table" or params[1].params == nil
  local given, groups = is_list and { { params = params } } or params, {}
  local known = { params = options.optional.table }
  for name, default in pairs(defaults) do known[name] = default end
  for position, group in ipairs(given) do
    groups[position] = options.read(owner .. " group " .. position, group, known)
    if not groups[position].params then
      core.raise("argument", owner, ("group %d has no params"):format(position))
    end
  end
  return groups
end

--- Reads the constructor's arguments; `defaults` also fixes which options there are.
---@param params argand.Tensor[]|table[]
---@param opts? table
---@param defaults table
function Optimizer:init(params, opts, defaults)
  local owner = class.of(self).class_name
  if class.of(self) == Optimizer then
    core.raise("argument", owner, "the base class makes no steps", "use optim.SGD, optim.Adam or optim.AdamW")
  end
  local read = options.read(owner, opts, defaults)
  self.groups = make_groups(owner, params, read)
  check_parameters(owner, self.groups)
  self.state = {}
  self.plans = {}
  for position, group in ipairs(self.groups) do
    local fault = self:check_group(group)
    local label = #self.groups > 1 and ("group %d: "):format(position) or ""
    if fault then core.raise("value", owner, label .. fault) end
  end
end

--- Returns a text when the group's options make no sense; subclasses define it.
---@param group table
---@return string|nil
function Optimizer.check_group(_, group)
  for _, name in ipairs { "lr", "weight_decay" } do
    if not options.is_between(group[name], 0) then
      return ("%s: expected a number >= 0, got %g"):format(name, group[name])
    end
  end
end

-- Parameters with a gradient, one batch for each count of steps taken: the kernels take one count a call. As
-- a rule that is one batch; parameters that had no gradient at times are behind and make others.
local function batches_of(self, group)
  local batches, order = {}, {}
  for _, parameter in ipairs(group.params) do
    local grad = parameter.grad
    if grad then
      local state = self.state[parameter]
      if not state then
        state = self:start_state(group, parameter)
        for name, value in pairs(state) do -- outlives a scope around this step
          if core.is_tensor(value) then state[name] = core.keep(value) end
        end
        self.state[parameter] = state
      end
      local batch = batches[state.step]
      if not batch then
        batch = { params = {}, grads = {}, states = {}, step = state.step }
        batches[state.step] = batch
        order[#order + 1] = batch
      end
      local position = #batch.params + 1
      batch.params[position], batch.grads[position], batch.states[position] = parameter, grad, state
    end
  end
  return order
end

-- As a rule every parameter of a group takes part in every step, with the same count of steps behind it. Then the batch of
-- the last step, kept in self.plans, serves again: only the gradients are fetched anew.
local function planned_batch(self, group)
  local batch = self.plans[group]
  if not batch or #batch.params ~= #group.params then return nil end
  local count = #batch.params
  for position = 1, count do
    if not rawequal(batch.params[position], group.params[position]) then return nil end
  end
  if core.collect_grads(batch.params, batch.list, count + 1) ~= count then return nil end
  batch.step = batch.states[1].step
  return batch
end

local function step_group(self, group)
  local planned = planned_batch(self, group)
  self.plans[group] = planned
  local batches = planned and { planned } or batches_of(self, group)
  for _, batch in ipairs(batches) do
    self:update(group, batch)
    for _, state in ipairs(batch.states) do state.step = state.step + 1 end
  end
  if #batches ~= 1 then return end
  local batch, count = batches[1], #batches[1].params
  if batch.list and count == #group.params then self.plans[group] = batch end
  for position = count + 1, 2 * count do batch.list[position] = false end -- gradients are not held between steps
end

local function step_all(self)
  for _, group in ipairs(self.groups) do step_group(self, group) end
end

--- Returns params, grads and the named state tensors of a batch as the one list that the kernels take.
---@param batch table
---@param ... string
---@return argand.Tensor[]
function Optimizer.tensors_of(_, batch, ...)
  local before, list, count = batch.list, {}, #batch.params
  if before and #before == (2 + select("#", ...)) * count then return before end
  batch.list = list
  for position = 1, count do
    list[position] = batch.params[position]
    list[count + position] = before and before[count + position] or batch.grads[position]
  end
  batch.grads = nil
  for which = 1, select("#", ...) do
    local name = select(which, ...)
    for position = 1, count do list[(which + 1) * count + position] = batch.states[position][name] end
  end
  return list
end

--- Updates every parameter that has a gradient, in place.
function Optimizer:step()
  ag.no_grad(step_all, self)
end

--- Forgets the gradients of all parameters.
function Optimizer:zero_grad()
  for _, group in ipairs(self.groups) do
    core.clear_grads(group.params)
  end
end

-- ---- state ----

local function each_parameter(self, visit)
  local position = 0
  for _, group in ipairs(self.groups) do
    for _, parameter in ipairs(group.params) do
      position = position + 1
      visit(position, parameter)
    end
  end
  return position
end

--- Returns {groups, state}: the options of every group, and the state by the parameter's position. Its
--- tensors share the optimizer's storage: the next step changes them.
---@return {groups: table[], state: table<integer, table>}
function Optimizer:state_dict()
  local result = { groups = {}, state = {} }
  for position, group in ipairs(self.groups) do
    local copy = { count = #group.params }
    for name, value in pairs(group) do
      if name ~= "params" then copy[name] = value end
    end
    result.groups[position] = copy
  end
  each_parameter(self, function(position, parameter)
    local state = self.state[parameter]
    if not state then return end
    local copy = {}
    for name, value in pairs(state) do copy[name] = core.is_tensor(value) and value:detach() or value end
    result.state[position] = copy
  end)
  return result
end

-- All that keeps a state from fitting, as lines of the message.
local function state_faults(self, state)
  local faults = {}
  if #state.groups ~= #self.groups then
    return { ("it has %d groups, the optimizer %d"):format(#state.groups, #self.groups) }
  end
  for position, group in ipairs(self.groups) do
    local saved = state.groups[position]
    if saved.count ~= #group.params then
      faults[#faults + 1] = ("group %d has %s parameters, the optimizer's %d"):format(position,
        tostring(saved.count), #group.params)
    end
    for _, name in ipairs(options.sorted_names(saved)) do
      if name ~= "count" and group[name] == nil then
        faults[#faults + 1] = ("group %d has the option %s, the optimizer does not"):format(position, name)
      end
    end
  end
  each_parameter(self, function(position, parameter)
    local own = table.concat(parameter:shape(), ", ")
    for name, value in pairs(state.state[position] or {}) do
      local saved = core.is_tensor(value) and table.concat(value:shape(), ", ") or own
      if saved ~= own then
        faults[#faults + 1] = ("%s of parameter %d is [%s], the parameter [%s]"):format(name, position,
          saved, own)
      end
    end
  end)
  return faults
end

--- Takes over a state_dict; all faults are reported in one error, and nothing is changed then.
---@param state {groups: table[], state: table<integer, table>}
function Optimizer:load_state_dict(state)
  local owner = class.of(self).class_name
  if type(state) ~= "table" or type(state.groups) ~= "table" or type(state.state) ~= "table" then
    core.raise("argument", owner, "state: expected what state_dict() returns")
  end
  local faults = state_faults(self, state)
  if #faults > 0 then core.raise("argument", owner, "state: " .. table.concat(faults, "; ")) end
  self.plans = {}
  for position, group in ipairs(self.groups) do
    for name, value in pairs(state.groups[position]) do
      if name ~= "count" then group[name] = value end
    end
  end
  each_parameter(self, function(position, parameter)
    local saved = state.state[position]
    self.state[parameter] = nil
    if not saved then return end
    local own = {}
    for name, value in pairs(saved) do
      own[name] = core.is_tensor(value) and value:detach():clone() or value
    end
    self.state[parameter] = own
  end)
end

function Optimizer.__tostring(self)
  local lines = {}
  for position, group in ipairs(self.groups) do
    local parts = {}
    for name, value in pairs(group) do
      if name ~= "params" then parts[#parts + 1] = name .. "=" .. tostring(value) end
    end
    table.sort(parts)
    lines[position] = ("  group %d: %d parameters, %s"):format(position, #group.params,
      table.concat(parts, ", "))
  end
  return class.of(self).class_name .. "(\n" .. table.concat(lines, "\n") .. "\n)"
end

return Optimizer
