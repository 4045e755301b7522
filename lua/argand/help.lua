--- help: what an op does, its parameters, where it runs; all of it from the engine's op table.
local core = require "argand.core"
local options = require "argand.options"

local M = {}

local DTYPES = { "f64", "f32", "f16", "bf16", "i64", "i32", "i16", "i8", "u8", "bool" }

local TYPES = {
  any = "tensor or number", num = "float or int tensor, or number", float = "float tensor, or number",
  int = "whole number", bool = "bool tensor", bits = "int or bool tensor", index = "int tensor of positions",
  ["any[]"] = "list of tensors", dim = "dim, 1-based or negative", dims = "dim or list of dims",
  ints = "list of whole numbers", shape = "list of sizes", position = "position, 1-based or negative",
  number = "number", flag = "boolean", dtype = "dtype name", device = "device name", generator = "generator",
}

-- The engine counts from 0; what is a place among dims or positions is shown from 1 on, as Lua code writes it.
local IS_PLACE = { dim = true, position = true }

--- The defaults in a signature, "op(name: type = default, ...)", by the parameter's name, as Lua code writes them.
---@param signature string
---@return table<string, string>
function M.defaults_of(signature)
  local defaults = {}
  local inside = signature:match("%((.*)%)") or ""
  for part in inside:gmatch("[^,]+") do
    local name, kind, default = part:match("^%s*([%w_]+)%??%s*:%s*([^=]-)%s*=%s*(.-)%s*$")
    if name then
      local place = IS_PLACE[kind] and tonumber(default)
      defaults[name] = place and place >= 0 and tostring(place + 1) or default
    end
  end
  return defaults
end

-- The signature as Lua code would write it.
local function lua_signature(info, defaults)
  local parts = {}
  for i, param in ipairs(info.params) do
    local default = defaults[param.name]
    parts[i] = param.name .. (param.optional and not default and "?" or "") .. (default and " = " .. default or "")
  end
  local results = info.signature:match("%->%s*(.*)$")
  return ("%s(%s)%s"):format(info.name, table.concat(parts, ", "), results and " -> " .. results or "")
end

local function support_text(name, device)
  local words, order = {}, {}
  for _, dtype in ipairs(DTYPES) do
    local word = core.supports(name, dtype, device) or "none"
    if not words[word] then
      words[word] = {}
      order[#order + 1] = word
    end
    table.insert(words[word], dtype)
  end
  local parts = {}
  for i, word in ipairs(order) do parts[i] = word .. ": " .. table.concat(words[word], " ") end
  return table.concat(parts, "; ")
end

--- Help on an op as text; nil when there is none of that name.
---@param name string
---@return string|nil
function M.text(name)
  if type(name) ~= "string" then
    core.raise("argument", "help", "name: expected the name of an op, got " .. type(name))
  end
  local info = core.op_info((name:gsub("^ag%.", ""):gsub("_$", "")))
  if not info or info.hidden then return nil end
  local defaults = M.defaults_of(info.signature)
  local lines = { lua_signature(info, defaults), "  " .. info.doc }
  if #info.params > 0 then lines[#lines + 1] = "parameters" end
  for _, param in ipairs(info.params) do
    local note = defaults[param.name] and "default " .. defaults[param.name] or param.optional and "optional" or ""
    local kind = TYPES[param.type] or param.type:gsub("|", ", ")
    lines[#lines + 1] = ("  %-16s %-34s %s"):format(param.name, kind, note):gsub("%s+$", "")
  end
  lines[#lines + 1] = "differentiable: " .. (info.differentiable and "yes" or "no")
  for _, device in ipairs(core.device_list()) do
    lines[#lines + 1] = ("on %s: %s"):format(device.name, support_text(info.name, device.name))
  end
  return table.concat(lines, "\n")
end

-- "dist.all_reduce" as a value of the library, or nil.
local function find_function(path)
  local value = require "argand"
  for word in path:gsub("^ag%.", ""):gmatch "[^.:]+" do
    local is_there, field = pcall(function() return value[word] end)
    value = is_there and field or nil
  end
  local collective = path:match "dist%.([%w_]+)$"
  local fn = collective and require("argand.dist.collectives")[collective] or value
  if type(fn) == "table" then fn = fn.class_name and fn.init end
  return type(fn) == "function" and fn or nil
end

--- Help on a function of the library written in Lua: how it is called, and the comment above it; nil when there is none.
---@param path string "dist.register"
---@return string|nil
function M.function_text(path)
  local fn = find_function(path)
  local place = fn and debug.getinfo(fn, "S")
  local file = place and place.what ~= "C" and io.open(place.source:match "^@(.*)" or "")
  if not file then return nil end
  local comment, number = {}, 0
  for line in file:lines() do
    number = number + 1
    if number == place.linedefined then
      local arguments = line:match "%((.-)%)" or ""
      table.insert(comment, 1, ("%s(%s)"):format(path, (arguments:gsub("^group, ", ""))))
      break
    end
    local text = line:match "^%-%-+(.*)"
    if not text then
      comment = {}
    elseif not text:find "^@param group " then
      comment[#comment + 1] = (text:gsub("^@", " "))
    end
  end
  file:close()
  return comment[1] and table.concat(comment, "\n ") or nil
end

--- `argand help NAME...`: prints the help on each op, or function such as dist.register; without names the list of all ops;
--- with --luacats the declarations for editors. Raises for an unknown name.
---@param args string[]
function M.main(args)
  if args[1] == "--luacats" then
    io.write(require("argand.stubs").text())
    return
  elseif #args == 0 then
    local names = core.op_names()
    table.sort(names)
    for _, name in ipairs(names) do print(("%-24s %s"):format(name, core.op_info(name).doc)) end
  end
  for _, name in ipairs(args) do
    local text = M.text(name) or M.function_text(name)
    if not text then
      local near = options.nearest(name, core.op_names())
      core.raise("argument", "help", "there is no op \"" .. name .. "\"",
        (near and "did you mean \"" .. near .. "\"? " or "") .. "`argand help` lists all")
    end
    print(text)
  end
end

return M
