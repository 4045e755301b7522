--- The base of all modules: holds parameters, buffers and child modules, and walks them in a fixed order.
--
-- Whatever is assigned to a field is kept in registration order (`_names`), so that parameters() gives the
-- same list on every run and rank. What a field counts as is decided when it is assigned or walked:
--   a leaf tensor with requires_grad     a parameter, also after it was frozen by requires_grad = false
--   a tensor given to register_buffer    a buffer: saved and moved, not trained
--   a module                             a child
--   a plain table                        searched: positions 1, 2, ... first, then other keys in order;
--                                        its tensors are parameters while they require gradients
-- Anything else is a plain field. A tensor found in two places is one parameter, under its first name.

local ag = require "argand"
local core = require "argand.core"
local class = require "argand.class"

---@class argand.nn.Module
---@field training boolean
local Module = class("Module")

function Module.allocate()
  return { _values = { training = true }, _names = { "training" }, _kinds = {} }
end

function Module.__index(self, key)
  local value = rawget(self, "_values")[key]
  if value ~= nil then return value end
  return getmetatable(self)[key]
end

local function forget(self, key)
  self._values[key], self._kinds[key] = nil, nil
  for position, name in ipairs(self._names) do
    if name == key then return table.remove(self._names, position) end
  end
end

function Module.__newindex(self, key, value)
  if value == nil then return forget(self, key) end
  if self._values[key] == nil then self._names[#self._names + 1] = key end
  if not core.is_tensor(value) then
    self._kinds[key] = nil
  elseif not self._kinds[key] and value.requires_grad and value.is_leaf then
    self._kinds[key] = "parameter"
  end
  self._values[key] = value
end

--- Calls forward.
---@param ... any
---@return any ...
function Module.__call(self, ...)
  return self:forward(...)
end

--- Makes a class below this one; give it init(self, ...) and forward(self, ...).
---@param name string
---@return table class
function Module:extend(name)
  return class(name, self)
end

--- Computes the module's result; subclasses define it.
function Module:forward()
  local name = class.of(self).class_name
  core.raise("argument", name, "the module has no forward()", ("define %s:forward(x)"):format(name))
end

--- Registers a tensor that is saved and moved with the module but not trained.
---@param name string
---@param tensor argand.Tensor
function Module:register_buffer(name, tensor)
  if not core.is_tensor(tensor) then
    core.raise("argument", "register_buffer", ("%s: expected a tensor, got %s"):format(name, type(tensor)))
  end
  self._kinds[name] = "buffer"
  self[name] = tensor
end

-- ---- walking ----

local walk

local function sorted_keys(value)
  local keys = {}
  for key in pairs(value) do
    if type(key) == "string" then keys[#keys + 1] = key end
  end
  table.sort(keys)
  return keys
end

-- visit(kind, path, value, holder, key): kind is "parameter", "buffer" or "module"; holder[key] is the value.
local function walk_value(visit, path, holder, key, kind, seen)
  local value = holder[key]
  if core.is_tensor(value) then
    if not kind and holder._kinds == nil and value.requires_grad and value.is_leaf then kind = "parameter" end
    if kind then visit(kind, path, value, holder, key) end
  elseif class.is_a(value, Module) then
    walk(value, visit, path, seen)
  elseif type(value) == "table" and getmetatable(value) == nil and not seen[value] then
    seen[value] = true
    for position = 1, #value do walk_value(visit, path .. "." .. position, value, position, nil, seen) end
    for _, name in ipairs(sorted_keys(value)) do
      walk_value(visit, path .. "." .. name, value, name, nil, seen)
    end
  end
end

function walk(module, visit, path, seen)
  if seen[module] then return end
  seen[module] = true
  visit("module", path, module)
  local prefix = path == "" and "" or path .. "."
  for _, name in ipairs(module._names) do
    walk_value(visit, prefix .. tostring(name), module, name, module._kinds[name], seen)
  end
end

local function collect(module, wanted, skip_first)
  local list, known = {}, {}
  walk(module, function(kind, path, value)
    if kind ~= wanted or known[value] then return end
    known[value] = true
    list[#list + 1] = { path, value }
  end, "", {})
  if skip_first then table.remove(list, 1) end
  return list
end

local function values_of(list)
  local values = {}
  for position, entry in ipairs(list) do values[position] = entry[2] end
  return values
end

local function iterator_of(list)
  local position = 0
  return function()
    position = position + 1
    local entry = list[position]
    if entry then return entry[1], entry[2] end
  end
end

--- Returns the parameters in the order of registration.
---@return argand.Tensor[]
function Module:parameters()
  return values_of(collect(self, "parameter"))
end

--- Iterates over name, parameter in the order of registration; names join the fields by dots.
---@return fun(): string?, argand.Tensor?
function Module:named_parameters()
  return iterator_of(collect(self, "parameter"))
end

--- Returns the buffers in the order of registration.
---@return argand.Tensor[]
function Module:buffers()
  return values_of(collect(self, "buffer"))
end

--- Iterates over name, buffer in the order of registration.
---@return fun(): string?, argand.Tensor?
function Module:named_buffers()
  return iterator_of(collect(self, "buffer"))
end

--- Returns this module and all below it, each before its children.
---@return argand.nn.Module[]
function Module:modules()
  return values_of(collect(self, "module"))
end

-- List of {name, module} of the modules directly below; those in plain tables count.
local function direct_children(module)
  local list, seen = {}, { [module] = true }
  local function visit(kind, path, value)
    if kind == "module" then list[#list + 1] = { path, value } end
  end
  -- walk() would go on below a child: a child's own fields are kept out by handing them over as seen.
  local function add(path, value)
    if class.is_a(value, Module) then
      if not seen[value] then visit("module", path, value) end
      seen[value] = true
    elseif type(value) == "table" and getmetatable(value) == nil and not seen[value] then
      seen[value] = true
      for position = 1, #value do add(path .. "." .. position, value[position]) end
      for _, name in ipairs(sorted_keys(value)) do add(path .. "." .. name, value[name]) end
    end
  end
  for _, name in ipairs(module._names) do add(tostring(name), module._values[name]) end
  return list
end

--- Returns the modules directly below this one.
---@return argand.nn.Module[]
function Module:children()
  return values_of(direct_children(self))
end

--- Iterates over name, module of the modules directly below this one.
---@return fun(): string?, argand.nn.Module?
function Module:named_children()
  return iterator_of(direct_children(self))
end

--- Returns the number of elements of all parameters.
---@return integer
function Module:num_parameters()
  local count = 0
  for _, parameter in ipairs(self:parameters()) do count = count + parameter:numel() end
  return count
end

-- ---- state ----

--- Returns a table name -> tensor of all parameters and buffers; the tensors share the module's storage.
---@return table<string, argand.Tensor>
function Module:state_dict()
  local state = {}
  walk(self, function(kind, path, value)
    if kind ~= "module" then state[path] = value:detach() end
  end, "", {})
  return state
end

local function shape_text(tensor)
  return "[" .. table.concat(tensor:shape(), ", ") .. "]"
end

-- All faults of a state against the module's own tensors, as lines of the message.
local function state_faults(own, state, strict)
  local faults = {}
  local function add(label, names)
    table.sort(names)
    if #names > 0 then faults[#faults + 1] = label .. ": " .. table.concat(names, ", ") end
  end
  local missing, unexpected, mismatched = {}, {}, {}
  for name, tensor in pairs(own) do
    local given = state[name]
    if given == nil then
      missing[#missing + 1] = name
    elseif not core.is_tensor(given) then
      mismatched[#mismatched + 1] = ("%s (expected a tensor, got %s)"):format(name, type(given))
    elseif shape_text(given) ~= shape_text(tensor) then
      mismatched[#mismatched + 1] = ("%s (expected %s, got %s)"):format(name, shape_text(tensor),
        shape_text(given))
    end
  end
  for name in pairs(state) do
    if own[name] == nil then unexpected[#unexpected + 1] = tostring(name) end
  end
  if strict then
    add("missing", missing)
    add("unexpected", unexpected)
  end
  add("mismatched", mismatched)
  return faults, missing, unexpected
end

--- Copies a state_dict into the module. All faults are reported in one error, and nothing is changed then.
---@param state table<string, argand.Tensor>
---@param options? {strict: boolean} strict = false leaves out missing and unexpected names
---@return string[] missing, string[] unexpected names, when not strict
function Module:load_state_dict(state, options)
  local read = require("argand.options").read("load_state_dict", options, { strict = true })
  if type(state) ~= "table" then
    core.raise("argument", "load_state_dict", "state: expected a table of tensors, got " .. type(state))
  end
  local own = self:state_dict()
  local faults, missing, unexpected = state_faults(own, state, read.strict)
  if #faults > 0 then
    local hint = #missing + #unexpected > 0 and "{strict = false} loads the names that both have" or nil
    local message = class.of(self).class_name .. ": " .. table.concat(faults, "; ")
    core.raise("argument", "load_state_dict", message, hint)
  end
  ag.no_grad(function()
    for name, tensor in pairs(own) do
      if state[name] then tensor:copy_(state[name]) end
    end
  end)
  return missing, unexpected
end

-- ---- modes and changes ----

--- Calls fn(module) on every module below this one and on this one, children first.
---@param fn fun(module: argand.nn.Module)
---@return argand.nn.Module self
function Module:apply(fn)
  local modules = self:modules()
  for position = #modules, 1, -1 do fn(modules[position]) end
  return self
end

--- Sets training mode, in which dropout and the like act.
---@param mode? boolean default true
---@return argand.nn.Module self
function Module:train(mode)
  local training = mode ~= false
  for _, module in ipairs(self:modules()) do module.training = training end
  return self
end

--- Leaves training mode.
---@return argand.nn.Module self
function Module:eval()
  return self:train(false)
end

--- Forgets the gradients of all parameters.
function Module:zero_grad()
  for _, parameter in ipairs(self:parameters()) do parameter.grad = nil end
end

local function is_float(tensor)
  local dtype = tensor.dtype
  return dtype == "f32" or dtype == "f64" or dtype == "f16" or dtype == "bf16"
end

--- Moves parameters and buffers to a device, or converts the float ones to a dtype. A tensor that changes is
--- replaced (shared ones stay shared), so make the optimizer afterwards.
---@param target string dtype or device
---@return argand.nn.Module self
function Module:to(target)
  local probe = ag.empty({ 0 }):to(target)
  local is_dtype = probe.dtype == target
  local replaced, changes = {}, {}
  walk(self, function(kind, _, value, holder, key)
    if kind == "module" or (is_dtype and not is_float(value)) then return end
    if not replaced[value] then
      local moved = value:detach():to(target)
      if moved.dtype == value.dtype and moved.device == value.device then
        moved = value
      elseif value.requires_grad then
        moved.requires_grad = true
      end
      replaced[value] = moved
    end
    changes[#changes + 1] = { holder, key, replaced[value] }
  end, "", {})
  for _, change in ipairs(changes) do change[1][change[2]] = change[3] end
  return self
end

-- ---- printing ----

--- Returns what tostring shows between the parentheses; subclasses define it.
---@return string
function Module.extra(_)
  return ""
end

local function describe(module, indent)
  local name, extra = class.of(module).class_name, module:extra()
  local children = direct_children(module)
  if #children == 0 then return name .. "(" .. extra .. ")" end
  local lines = { name .. "(" .. extra }
  for _, child in ipairs(children) do
    lines[#lines + 1] = ("%s  (%s): %s"):format(indent, child[1], describe(child[2], indent .. "  "))
  end
  lines[#lines + 1] = indent .. ")"
  return table.concat(lines, "\n")
end

--- Returns the tree of modules, one a line.
function Module.__tostring(self)
  return describe(self, "")
end

return Module
